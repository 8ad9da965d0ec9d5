#!/bin/sh
# pair.sh DEVICE CLOUD: makes the keys of a device and a cloud with these data folders, unless they are there, and has
# each trust the other's, also in place of one from before. For whoever may write to both; two machines do the same with
# `dragon pair`.
set -eu
device=$1
cloud=$2

# keys FOLDER ROLE WORDS...: `dragon keys` of that side
keys() {
    folder=$1 role=$2 command=$3
    shift 3
    DRAGON_DATA_DIR=$folder dragon keys "$command" --role "$role" "$@"
}

public_key() { keys "$1" "$2" show | sed -n 's/^public key *//p'; }

[ -e "$device/device/keys/own.json" ] || keys "$device" device new > /dev/null
[ -e "$cloud/cloud/keys/own.json" ] || keys "$cloud" cloud new > /dev/null
keys "$device" device trust --replace cloud "$(public_key "$cloud" cloud)"
keys "$cloud" cloud trust --replace device "$(public_key "$device" device)"
