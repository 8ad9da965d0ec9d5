"""The cloud daemon: its role, its sessions and their admission."""
