"""Question words, grammar words and month names, by language.

Readers tell these languages apart by letters (`readers/latin.py`) or encodings. The lists are incomplete.
"""

from __future__ import annotations

from typing import Final

# ruff: noqa: RUF001

# Articles, pronouns, prepositions, conjunctions, auxiliary verbs, question words; no elided forms (apostrophes).
# English first.
GRAMMAR_WORDS: Final = {
    "english": (
        "a about after again all also am an and any anybody anyone anything are as at be because been before being"
        " both but by called can could did do does doing done each either else ever every everyone everything for"
        " from gave get gets give given gives go goes got had has have having he her here hers herself him himself"
        " his how i if in into is it its itself just kind know known let like long made make makes many may me mean"
        " means might mine more most much must my myself name named need needs neither no nor not of often on one"
        " only or other others ought our ours ourselves out over own please said same say says shall she should show"
        " so some somebody someone something still such take tell than that the their theirs them themselves then"
        " there these they thing things this those to too until up upon us use used very was we were what whatever"
        " when where whether which while who whom whose why will with would you your yours yourself"
    ),
    "german": (
        "ab aber alle allem allen aller alles als also am an andere anderen auch auf aus außer bei beim bin bis bist"
        " da dabei damit danach dann daran darauf darf das dass daß dazu dein deine dem den denen denn der deren des"
        " dessen dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein eine einem einen einer"
        " eines er es etwas euch euer eure fand für gab gegen gehabt gibt habe haben hat hatte hatten hier hin ich"
        " ihm ihn ihnen ihr ihre ihrem ihren ihrer ihres im in ins ist jede jedem jeden jeder jedes kann kein keine"
        " keinen können könnte machen macht man mehr mein meine meinem meinen meiner mich mir mit muss müssen nach"
        " nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen seiner seit sich sie sind so soll"
        " sollen sollte sondern über um und uns unser unsere unter viel viele vom von vor während wann war waren"
        " warum was weil welche welchem welchen welcher welches wem wen wenn wer werde werden wessen weshalb wie"
        " wieso wieviel will wir wird wirst wo wofür woher wohin wollen womit worden worüber wovon wozu wurde wurden"
        " würde zu zum zur zwischen"
    ),
    "dutch": (
        "aan al alle als bij daar dan dat de deze die dit doen door een en er geen had heb hebben heeft hem het hier"
        " hij hoe hoeveel hun iets ik in is ja je jij kan kunnen maar me met mij mijn moet na naar niet nog nu of om"
        " omdat onder ons onze ook op over te toen tot u uit uw van veel voor waar waarom wanneer waren was wat we"
        " welk welke werd wie wij worden wordt zal ze zich zij zijn zo zonder zou"
    ),
    "swedish": (
        "alla att av bara blev bli blir där de dem den denna deras dess det detta dig din ditt du efter eller en er"
        " ett från för ha hade han hans har hennes här hon honom hur i inte jag kan kunde man med mellan men mig min"
        " mitt många mot mycket när någon något några nu och om oss på sedan sig sin sina sitt ska skulle som så till"
        " under upp ut utan vad var varför vara varit vem vems vi vid vilka vilken vilket över är än åt"
    ),
    "danish": (
        "af alle at blev blive bliver da de dem den denne der deres det dette dig din disse du efter eller en end er"
        " et for fra før ham han hans har havde hende hendes her hvad hvem hvilke hvilken hvilket hvis hvor hvordan"
        " hvorfor hvornår i ikke ind jeg jer kan kunne man mange med meget mellem men mig min mit mod ned nogen noget"
        " nogle nu og også om op os over på sig sin sine skal skulle som så til ud uden under var ved vi vil ville"
        " være været"
    ),
    "norwegian": (
        "alle at av bare ble bli blir da de deg dem den denne deres det dette din disse du eller en enn er et etter"
        " for fra før ha hadde han hans har henne hennes her hun hva hvem hvilke hvilken hvilket hvis hvor hvordan"
        " hvorfor i ikke inn jeg kan kunne man mange med meg mellom men min mitt mot mye nå når noe noen og også om"
        " opp oss over på seg sin sine skal skulle som så til ut uten under var ved vi vil ville være vært"
    ),
    "icelandic": (
        "að af allir á bara eða ef eftir eiga ein einn eitt ekki en er eru eruð fyrir frá hafa hafði hann hans hefur"
        " hér hjá honum hún hvað hvaða hvar hve hvenær hver hvernig hvers hvert í já með mig mér mikið minn mitt mjög"
        " nema nú og okkar sem sér sig sinn um undir upp úr var vera verið verður við vil yfir það þar þau þegar þeim"
        " þeir þeirra þessi þetta þið þinn þú því"
    ),
    "finnish": (
        "ei eivät että en hän hänen he heidän ja jo joka jonka jos jotka kanssa keitä ketkä kenen ketä koska koko"
        " kuin kuka kuinka kun me meidän mihin mikä miksi millainen milloin minä minkä minun missä mistä mitä mitkä"
        " mukaan mutta myös ne niiden niin nyt oli olivat olla ollut on onko ovat paljonko se sekä sen siellä siinä"
        " sinä sitä tai te tämä tämän tuo vai vain"
    ),
    "estonian": (
        "aga ega ei ennast et ja juba ka kas kelle kes kellel koos kui kuhu kuid kuidas kus kust ma mida mina miks"
        " millal milline millise mille minu mis mitu ning nad need nende nii oli olid olla olnud oma on pärast sa see"
        " selle seda siis sina ta tema teda või väga"
    ),
    "french": (
        "a à ai au aucun aussi autre autres aux avait avant avec avez avons ce cela celle celui ces cet cette ceux"
        " chez combien comme comment dans de des donc dont du elle elles en entre est et étaient était été être eu"
        " eux fait fut il ils je la laquelle le lequel les lesquels leur leurs lui ma mais me même mes moi mon"
        " ne ni nos notre nous on ont ou où par pas pendant peut plus pour pourquoi quand que quel quelle"
        " quelles quels qui quoi sa sans se sera ses si son sont sous sur ta te tes toi ton tous tout toute"
        " toutes très tu un une va vers vos votre vous y"
    ),
    "spanish": (
        "a al algo algún alguna algunos ante antes como cómo con contra cual cuál cuales cuáles cuando cuándo cuanta"
        " cuánta cuántas cuanto cuánto cuántos cuyo de del desde donde dónde durante el él ella ellas ellos en entre"
        " era eran eres es esa ese eso esta está estaba están estar este esto estos fue fueron ha había han hasta hay"
        " he la las le les lo los más me mi mis muy nada ni no nos nosotros o os otra otro otros para pero por porque"
        " puede que qué quien quién quiénes se ser será si sí sido sin sobre son soy su sus también te tener tengo"
        " tiene tienen todo todos tu tus un una uno unos y ya yo"
    ),
    "portuguese": (
        "a à ao aos aquela aquele as às até com como cujo da das de dele dela do dos e é ela elas ele eles em entre"
        " era eram essa esse esta está estão este eu foi foram há isso isto já lhe mais mas me mesmo meu meus minha"
        " muito na não nas nem no nos nossa nosso num numa o onde os ou para pela pelas pelo pelos por porque pode"
        " qual quais quando quanta quanto quantos que quem são se sem ser seu seus só sua suas também te tem têm"
        " tinha todos tu um uma você"
    ),
    "italian": (
        "a ad agli ai al alla alle allo anche che chi ci ciò coi col come con cosa cui da dagli dai dal dalla"
        " dalle de degli dei del della delle dello di dov dove e è ed era erano fra fu gli ha hai hanno ho i il"
        " in io la le lei li lo loro lui ma me mi mia mie miei mio molto ne nei nel nella nelle no noi non"
        " nostra nostro o per perché più può qual quale quali quando quanta quante quanti quanto quella quello questa"
        " queste questi questo se si sia siamo sono sta stata stato su sua sugli sui sul sulla suo suoi te ti tra tu"
        " tutti tutto un una uno vi voi"
    ),
    "catalan": (
        "a al als amb aquell aquest aquesta això com de del dels des el ell ella elles ells els em en ens entre era"
        " eren és es està et fins ha han he hi ho i la les li lo meva meu més molt ni no nosaltres o on per"
        " perquè però pot qual quan quant quanta quants que què qui quin quina quins sense ser seu seva seves si"
        " són sobre sota també te tot tots un una unes uns va van"
    ),
    "romanian": (
        "a acea aceasta acel acest această aceste acești ai al ale am are as au avea ca când cât câte câți care către"
        " ce cea cel cele cei cine cu cum cui da dar de decât deci despre din dintre după ea ei el ele era erau este"
        " eu fără fi fie fost i iar îi îl în în îmi între își l la le lor lui mai mea meu mult nu o or ori pe pentru"
        " prin sa să sau se si și sub sunt te un unde una unei unui va voi"
    ),
    "polish": (
        "a albo ale bardzo bez będzie będą był była było były być by ci co czego czemu czy czyj czyja czym dla do gdy"
        " gdzie go i ich ile ich im ja jak jaka jaki jakie jako je jego jej jest jestem jeszcze już kiedy kim kogo"
        " komu kto która które którego której który których ma mają mam mi mnie może można mój moja na nad nas nasz"
        " nawet nie niż o od on ona one oni oraz po pod przed przez przy są się skąd swoje ta tak także tam te tego"
        " tej ten to tu tylko tym u w we więc wszystko z za ze że"
    ),
    "czech": (
        "a aby ale ani až bez bude budou by byl byla bylo byly být ci co čí čem čeho do ho i já jak jaká jaké jaký"
        " jako je jeho jej její jejich jen jestli ještě již jsem jsme jsou k kam kde kdo kdy když ke koho kolik komu"
        " která které kterého kterou který kteří má mají mám mezi mě mi mít můj na nad nám náš ne nebo není než o od"
        " on ona oni ono po pod podle pro proč proto před při s se si ta tak také tam tato ten tento to toho tom tu"
        " ty u už v ve více však z za ze že"
    ),
    "slovak": (
        "a aby ak aká aké aký ako ale alebo ani áno asi až bez bol bola boli bolo bude budú by byť čí čo čom čoho do"
        " ho i iba ja je jeho jej ich k kam kde kedy keď koho koľko komu kto ktorá ktoré ktorého ktorú ktorý ku má"
        " majú mám medzi mi môj môže my na nad nám nás náš nie než nič o od on ona oni po pod podľa pre preto prečo"
        " pred pri s sa si sme so som sú ta tak také tam táto ten tento to toho tom tu tú ty u už v vo viac však z za"
        " zo že"
    ),
    "croatian": (
        "a ali bez bi bila bili bilo bio bit biti će čega čemu čija čije čiji da do dok ga gdje i ih ili iz ja je"
        " jedan jer jesu joj još ju k kad kada kako kakav kakva koga koja koje kojeg koji kojoj koliko kome moj moja"
        " mu na nad nakon nas ne neka neki nije nisu o od on ona oni ono ova ovaj ovo po pod prema pri prije s sa sam"
        " samo se si smo ste su sve svi svoj ta taj tko to toga tu u uz već vi više za zašto"
    ),
    "slovenian": (
        "a ali bi bil bila bili bilo biti bo bodo brez če čigav da do dokler ga ima imajo in iz ja jaz je jih jo k"
        " kaj kakšen kakšna kako kam kdaj kdo ker kje ko koga koliko komu kot ki lahko med mi moj moja mu na nad naj"
        " ne ni nič niso njegov njen o ob od on ona oni ono pa po pod pred pri s sem se si smo so sta svoj ta tam te"
        " tega ti to tudi tukaj v več vse za zakaj z že"
    ),
    "hungarian": (
        "a abban ahol aki akik amely ami amit át az azok azt be csak de e ebben ég egy egyik el ez ezek ezt én és fel"
        " hány ha hanem hogy hogyan hol honnan hová és is itt kell ki kié kik kit kinek le lesz lehet még meg mely"
        " melyik mennyi mert mi miért mikor milyen mint mit mivel most nagyon nekem nem nincs ő ők ott össze pedig s"
        " sem szerint számára után vagy van vannak volt voltak"
    ),
    "turkish": (
        "acaba ama bana bazı belki ben beni benim bir biri birkaç biz bize bizim bu buna bunda bunlar bunu bunun çok"
        " çünkü da daha de değil diye eğer en gibi hangi hangisi hem hep her hiç için ile ise kaç kadar kendi ki kim"
        " kime kimin mı mi mu mü nasıl ne neden nedir nerede nereden nereye niçin niye o olan olarak oldu olduğu on"
        " ona onlar onu onun sen siz şey şu tüm var ve veya ya yani yok"
    ),
    "vietnamese": (
        "ai anh bao bằng bị cái các cho chỉ có của cùng cũng do đã đang đây đến để đi điều đó được gì hay hoặc là lại"
        " làm lên lúc mà mấy mình mỗi một nào này nên nếu ở phải qua ra rất rồi sao sau sẽ thế theo thì tại tôi trên"
        " trong trước từ và vào vẫn vì với"
    ),
    "russian": (
        "а без более бы был была были было быть в вам вас весь во вот все всё вы где да даже для до его ее её ей ему"
        " если есть еще ещё же за и из или им их к как какая какие каким какого какое какой каков кем ко когда кого"
        " кому который которая которое которые куда кто ли между меня мне мой моя мы на над нам нас наш не нет ни но"
        " о об обо он она они оно от откуда очень по под почему при с со свой себя сколько так также там то тоже"
        " только тот ты у уже чего чей чем через что чтобы чья эта эти это этого этой этом этот я"
    ),
    "ukrainian": (
        "а або але без би був була були було бути в вам вас ви від він вона вони воно все всі де для до за з зі"
        " звідки й його його її їй їм їх і із як яка яке які який якого якій кого коли кому котрий куди ким між мене"
        " мені ми мій моя на над нам нас наш не ні о про при по під після свій себе скільки та так також там те ти"
        " той тому то у уже хто це цей цього ця ці чи чий чия чого чому що щоб я є"
    ),
    "greek": (
        "αλλά αν από αυτά αυτή αυτό αυτός για δεν δύο εγώ εδώ είμαι είναι είχε εκεί εμείς ένα ένας εσύ έχει έχουν η"
        " ήταν θα και κάθε κατά κι μα μας με μετά μέχρι μη μην μια μου να ο οι όμως όπου όπως όταν ότι ούτε πια ποια"
        " ποιά ποιος ποιο ποιοι ποιον ποιού πολύ πόσα πόση πόσο πόσοι πότε που πού προς πως πώς σας σε στα στη στην"
        " στις στο στον στους τα τη την της τι τις το τον του τους των ως"
    ),
    "hebrew": (
        "אבל או אותו אז איזה איזו אילו אין איך איפה אל אם אנחנו אני את אתה אתם בין גם הוא היא היה היו הייתה הם הן זאת"
        " זה זו יש כאשר כי כל כמה כמו לא לאן לו לי למה למי לפני מאיפה מדוע מה מהו מהי מי מן מתי על עד עם עוד של שלו"
        " שלי שלה שם"
    ),
    "arabic": (
        "أن أنا أنت أو أي أين أية إذا إلى إن الذي الذين التي ألا بعد بل بين تكون ثم حتى حيث ذلك على عن عند في قبل قد"
        " كل كم كان كانت كيف لا لقد لكن لم لماذا له لها لي ليس ما ماذا متى مع من منذ هذا هذه هل هم هنا هناك هو هي و"
        " يكون"
    ),
    "hindi": (
        "और एक कब कहाँ कहां का कि कितना कितनी कितने किस किसका किसकी किसके किसने किसे की के को कौन कौनसा क्या क्यों"
        " कैसे गई गया जब जो तक तो था थी थे ने नहीं पर भी मेरा मेरी मेरे में मैं यह या ये वह वे से हम है हैं हो होता"
    ),
    "korean": (
        "가장 그 그것 그리고 나 내 너 누가 누구 누구의 누구인가 누구입니까 는 대한 등 무엇 무엇을 무엇이 무엇인가"
        " 무엇인가요 무엇입니까 및 몇 것 수 어느 어디 어디에 어디인가요 어디입니까 어떤 어떻게 언제 얼마 얼마나"
        " 얼마인가요 얼마입니까 왜 우리 은 이 이것 있는 있다 있습니까 있나요 저 제 하는 한 할"
    ),
}
# Other languages' grammar words with a meaning in English.
ALSO_ENGLISH: Final = (
    "ad am ante art barn bin bold car care come comment con den die do don dove era fin for fur gift hat her hun i"
    " list man mar me men mine mint mit most mot no nu on or pan par per pod pot pour rat sale sam see si sin so son"
    " sue sur te ten tot tu um under us van var via vor war were"
)
# The same for scripts without spaces.
UNSPACED_GRAMMAR: Final = (
    "为什么 為什麼 什么时候 什麼時候 什么 什麼 怎么样 怎么 怎麼 怎样 哪里 哪裡 哪儿 哪个 哪個 哪些 哪一 多少 是谁"
    " 是誰 谁 誰 哪 几 幾 吗 嗎 呢 吧 我们 我們 你们 你們 他们 他們 的 是 了 在 和 与 與 或 也 都 这个 這個 那个 那個"
    " 这 這 那 有 被 把 从 從 对 對 でしょうか でしたか ですか ますか ましたか でした です ました ます ください"
    " について において による によって どこ どれ どの どんな どう どうして なぜ いつ いくつ いくら だれ 誰 何時 何"
    " なに なん これ それ あれ この その あの から まで より ある あり いる あった という として は が を に へ と で"
    " の も か や た だ ใคร อะไร ที่ไหน ไหน เมื่อไร เมื่อไหร่ ทำไม อย่างไร เท่าไร เท่าไหร่ กี่ คือ เป็น ของ ที่ และ"
    " ใน มี ได้ ให้ จะ ก็"
)
# Nominative, as in dates, and abbreviated.
MONTH_NAMES: Final = (
    (
        "january jan januar januari janvier janv enero ene janeiro gennaio gen gener ianuarie ian tammikuu tammikuuta"
        " jaanuar janúar január januára styczeń stycznia leden ledna siječanj siječnja ocak январь января янв січень"
        " січня ιανουάριος ιανουαρίου ינואר يناير जनवरी"
    ),
    (
        "february feb februar februari febr février févr febrero fevereiro fev febbraio febrer februarie helmikuu"
        " helmikuuta veebruar febrúar február februára luty lutego únor února veljača veljače şubat февраль февраля"
        " февр лютий лютого φεβρουάριος φεβρουαρίου פברואר فبراير फ़रवरी"
    ),
    (
        "march mar mars märz mär mrz maart mrt marts marzo março març martie maaliskuu maaliskuuta märts marec marca"
        " březen března ožujak ožujka március márciusa márc mart март марта березень березня μάρτιος μαρτίου מרץ مارس"
        " मार्च"
    ),
    (
        "april apr avril avr abril abr aprile aprilie huhtikuu huhtikuuta aprill apríl apríla április ápr kwiecień"
        " kwietnia duben dubna travanj travnja nisan апрель апреля квітень квітня απρίλιος απριλίου אפריל أبريل"
        " अप्रैल"
    ),
    (
        "may mai mei maj mayo maio maggio mag maig toukokuu toukokuuta maí máj mája máj május maja květen května"
        " svibanj svibnja mayıs май мая травень травня μάιος μαΐου מאי مايو मई"
    ),
    (
        "june jun juni juin junio junho giugno giu juny iunie kesäkuu kesäkuuta juuni júní jún júna június czerwiec"
        " czerwca červen června lipanj lipnja junij haziran июнь июня червень червня ιούνιος ιουνίου יוני يونيو जून"
    ),
    (
        "july jul juli juillet juil julio julho luglio lug juliol iulie heinäkuu heinäkuuta juuli júlí júl júla"
        " július lipiec lipca červenec července srpanj srpnja julij temmuz июль июля липень липня ιούλιος ιουλίου"
        " יולי يوليو जुलाई"
    ),
    (
        "august aug augustus augusti août agosto ago agost elokuu elokuuta ágúst augusta augusztus sierpień sierpnia"
        " srpen srpna kolovoz kolovoza avgust ağustos август августа авг серпень серпня αύγουστος αυγούστου אוגוסט"
        " أغسطس अगस्त"
    ),
    (
        "september sep sept septembre septiembre setembro settembre set setembre septembrie syyskuu syyskuuta"
        " septembra szeptember szept wrzesień września září rujan rujna eylül сентябрь сентября сент вересень вересня"
        " σεπτέμβριος σεπτεμβρίου ספטמבר سبتمبر सितंबर"
    ),
    (
        "october oct oktober okt octobre octubre outubro out ottobre ott octombrie lokakuu lokakuuta oktoober október"
        " októbra październik października říjen října listopad listopada ekim октябрь октября окт жовтень жовтня"
        " οκτώβριος οκτωβρίου אוקטובר أكتوبر अक्टूबर"
    ),
    (
        "november nov novembre noviembre novembro noiembrie marraskuu marraskuuta nóvember novembra listopad"
        " listopada listopadu studeni studenoga kasım ноябрь ноября нояб листопад листопада νοέμβριος νοεμβρίου"
        " נובמבר نوفمبر नवंबर"
    ),
    (
        "december dec dezember dez desember des décembre déc diciembre dic dezembro dicembre desembre decembrie"
        " joulukuu joulukuuta detsember decembra grudzień grudnia prosinec prosince prosinac prosinca aralık декабрь"
        " декабря дек грудень грудня δεκέμβριος δεκεμβρίου דצמבר ديسمبر दिसंबर"
    ),
)
