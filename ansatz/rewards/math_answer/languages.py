"""The words around an answer in other languages than English: what denies it, doubts it, bounds it, or takes it back.

Chinese, Japanese, Korean, Hindi, Arabic, French, Spanish, Portuguese, Italian, German, Dutch, Russian, Polish and
Turkish. The patterns are for `re.IGNORECASE`. A word of an alphabet with spaces between words must stand alone; any
other may stand inside a text.
"""

from __future__ import annotations

from ansatz.rewards.math_answer.words import words_of_text


def _pattern(spaced: str, unspaced: str = "") -> str:
    """A pattern for any of the listed words and phrases, which bars separate."""
    alone, inside = ("|".join(part.strip() for part in words.split("|")) for words in (spaced, unspaced))
    return rf"(?<!\w)(?:{alone})(?!\w)".replace(" ", r"\s+") + (f"|{inside}" if inside else "")


OR = (
    r"or|and/or|oder|ou|lub|albo|bądź|veya|ya\s+da|yahut|o|ó|oppure|или|либо|或者|或是|或|または|もしくは|あるいは|또는|혹은"
    r"|이거나|या|अथवा|أو"
)
AND = r"and|und|en(?=\s+\\)|oraz|ve|et|y|e|и|以及|和|与|與|及|および|と|그리고|와|과|및|और|एवं|तथा|و"

_DENIED = """
nicht|kein|keine|keinen|keiner|keinesfalls|keineswegs|nie|niemals|weder|pas|jamais|aucun|aucune|nullement|nunca|jamás
|tampoco|ningún|ninguno|ninguna|não|nem|nenhum|nenhuma|nessun|nessuno|nessuna|не|ни|нет|никогда|нельзя|falsch|faux
|fausse|falso|falsa|incorrect|incorrecte|incorrecto|incorrecta|incorreto|incorreta|errado|errada|sbagliato|sbagliata
|неверно|неправильно|неверный|ليس|ليست|لا|لن|لم|غير|خطأ|خاطئ|خاطئة|no es|no son|no puede|non è|non sono|non può
|außer|sauf|excepto|salvo|tranne|кроме|إلا|سوى
|niet|geen|nooit|evenmin|onjuist|behalve|żaden|żadna|żadne|nigdy|oprócz|błędn[aey]|nieprawda|nieprawdą|değil
|değildir|hiçbir|asla|yok|yoktur
|olamaz|yanlış|yanlıştır|hariç
"""
_DENIED_INSIDE = r"""
不(?!同|等式|变|論|论|動|动)|非(?!负|負|零)|没|沒|無い|无(?!论|限|关)|错|錯|误(?!差)|誤|ない|ません|違|아니|아닌|아닙|않
|못|없|틀렸|틀린|नहीं|ग़?लत
|के\s+अलावा|除了
"""
_DOUBTED = """
doute|doutons|bezweifle|bezweifeln|zweifle|dudo|dudamos|duvido|duvidamos|dubito|dubitiamo|сомневаюсь|сомневаемся
|wątpię|betwijfel|şüpheliyim|vielleicht|wahrscheinlich|möglicherweise|eventuell|vermutlich|könnte|dürfte|wohl|peut-être|probablement|possiblement
|pourrait|quizás|quizá|tal vez|probablemente|posiblemente|a lo mejor|podría|puede ser|talvez|provavelmente
|possivelmente|poderia|pode ser|forse|probabilmente|possibilmente|potrebbe|può essere|возможно|может|наверное
|вероятно|пожалуй|ربما|قد|لعل|wenn|falls|если|إذا|لو
|misschien|wellicht|waarschijnlijk|mogelijk|vermoedelijk|indien|zou|zouden|chyba|może|być może|prawdopodobnie
|możliwe|jeśli|jeżeli|gdyby
|\\w+(?:łby|łaby|łoby|liby)|serait|seraient|wäre|wären|würde|würden|sería|serían|seria|seriam|sarebbe|sarebbero
|sollte|sollten|müsste|müssten|devrait|devraient|debería|deberían|deveria|deveriam|dovrebbe|dovrebbero
|powinno|powinien|powinna|должно|belki|muhtemelen|olabilir|sanırım|galiba|eğer
"""
_DOUBTED_INSIDE = r"""
可能|也许|也許|或许|或許|大概|估计|恐怕|如果|是否|かもしれ|たぶん|多分|おそらく|恐らく|だろう|でしょう|もし|아마
|수도\s?있|것\s?같|만약|शायद|संभव|हो\s+सकता
|अगर|यदि
"""
_BOUNDED = """
kleiner|größer|grösser|mehr als|weniger als|mindestens|höchstens|unter|über|zwischen|moins|plus de|plus que
|plus grande? que|plus petite? que|supérieure?|inférieure?|au plus|entre|más de|más que|mayor que|menor que|menos
|mayor o igual|menor o igual|como máximo|como mucho|mais de|mais que|maior que|maior do que|menor do que|pelo menos
|no máximo|no mínimo|inferior|superior|meno di|più di|meno che|maggiore di|minore di|maggiore|minore|almeno|al massimo
|tra|fra|больше|меньше|менее|более|между|свыше|أكثر|أقل|أكبر|أصغر|بين|فوق|تحت
|minder dan|meer dan|kleiner dan|groter dan|minstens|hoogstens|ten minste|ten hoogste|tussen|mniej niż|więcej niż
|mniejsz[aey] niż|większ[aey] niż|mniejsz[aey] od|większ[aey] od|co najmniej|co najwyżej|przynajmniej|ponad|poniżej
|en az|en fazla|en çok|büyüktür|küçüktür|büyük|küçük|fazla|arasında|az|azdır|çoktur|fazladır|aşar|kadar
|bis zu|maximal|minimal|allenfalls|wenigstens|knapp|jusqu'à|au minimum|au maximum|tout au plus|à peine|hasta
|por lo menos|al menos|a lo sumo|fino a|al più|até
|quando muito|ao menos|maximaal|minimaal|hooguit|op zijn minst|op zijn hoogst|maksymalnie|minimalnie
|как минимум|самое большее|самое меньшее|по крайней мере|не более|не менее
|على الأقل|على الأكثر|en çok|en azından
"""
_BOUNDED_INSIDE = r"""
小于|小於|大于|大於|少于|少於|多于|多於|低于|高于|超过|超過|不到|至少|至多|以上(?!より|から|によ|の)|以下|以内|介于
|之间|未満|より(?=[少小大多高低])|보다|이상|이하
|최대(?!\s?공|\s?값)|최소(?!\s?공|\s?값)|적어도|많아야|고작|불과|最多|最少|不足|将近|起码|起碼|顶多|頂多|少なくとも|多くても|最低で?も|高々|最大で|超え|満たな|अधिकतम|न्यूनतम|ज़्?यादा\s+से
|미만|초과|사이|से\s+कम|से\s+अधिक|से\s+ज़्?यादा|से\s+बड़|से\s+छोट|कम\s+से\s+कम|के\s+बीच
"""
_ABOUT = """
ungefähr|etwa|circa|ca|rund|fast|beinahe|annähernd|environ|approximativement|à peu près|presque|quasiment
|unos(?=\\s\\d)|unas(?=\\s\\d)|aproximadamente|cerca de|alrededor de|casi|más o menos|mais ou menos|quase|quasi
|approssimativamente|около|примерно
|приблизительно|почти|ongeveer|bijna|rond|zowat|circa|helft|dubbele|około|prawie|niemal|mniej więcej|w przybliżeniu
|połow[aęy]
|podwojon[aey]|dwukrotność|yaklaşık|neredeyse|aşağı yukarı|yarısı|iki katı|civarında|تقريبا|تقريباً|حوالي|نحو
|hälfte|doppelte?|doppelt|moitié|double|triple|mitad|doble|metade|dobro
|metà|doppio|половина|вдвое|نصف|ضعف
"""
_ABOUT_INSIDE = r"""
大约|大約|约|約|左右|差不多|接近|近似|およそ|ほぼ|ほとんど|くらい|ぐらい|거의|대략|정도|쯤|약\s?(?=\d|\$)|लगभग
|क़?रीब|आधा|दोगुना|一半|半分|の半|절반|倍|배|分之
|百|千(?!米|克)|万|萬|億|亿|만|억|हज़?ार|लाख|करोड़|ألف|مليون|か$|吗|嗎|까$|क्या
"""
_RETRACTED = """
nein|warte|moment|eigentlich|doch|halt|korrektur|entschuldigung|falsch|non|attends|attendez|en fait|erreur|faux
|pardon|correction|en realidad|espera|perdón|corrección|mejor dicho|não|na verdade|espere|desculpe|correção|in realtà
|aspetta|scusa|scusate|correzione|anzi|нет|стоп|подождите|подожди|погодите|на самом деле|вернее|точнее|извините|لا
|nee|wacht|eigenlijk|sorry|klopt niet|correctie|toch|nie|czekaj|zaraz|właściwie|przepraszam|pomyłka|błąd|korekta
|jednak
|hayır|bekle|dur|aslında|pardon|düzeltme|yanlış
|انتظر|لحظة|في الواقع|عذرا|عذراً|تصحيح|بل
"""
_RETRACTED_INSIDE = """
不对|不對|不是|等等|等一下|其实|其實|实际上|實際上|抱歉|更正|应该是|應該是|いいえ|いや|待って|待てよ|実は
|すみません|訂正|正しくは|아니|잠깐|사실|죄송|정정|नहीं
|रुको|रुकिए|असल में|वास्तव में|माफ़|माफ
"""
_WRONG = r"""
ist (?:\w+ )?falsch|war (?:\w+ )?falsch|stimmt (?:\w+ )?nicht|ist nicht|est (?:\w+ )?faux|est (?:\w+ )?fausse
|est incorrecte?|n'est pas|n’est pas|es (?:\w+ )?falso|es (?:\w+ )?falsa|es incorrect[oa]|está mal|no es|é falso
|está errad[oa]|está incorret[oa]|não é|è sbagliat[oa]|è errat[oa]
|non è|is fout|is onjuist|klopt niet|is niet|jest błędn[aey]|to błąd|jest niepoprawn[aey]|to nieprawda|nie jest
|yanlış|yanlıştır|değil|değildir|hatalı
|неверно|неправильно|не верно|ошибка|ошибся|ошиблась|خطأ|خاطئة?|ليس|ليست|غير صحيحة?
"""
_WRONG_INSIDE = r"""
不对|不對|不正确|不正確|不是|错了|錯了|错误|錯誤|是错|間違|誤り|違います|違う|ではない|ではありません|아닙니다
|아니다|틀렸|틀립|틀린|잘못|ग़?लत\s+है|नहीं\s+है
"""


def _joined(spaced: str, unspaced: str) -> str:
    return _pattern(spaced.replace("\n", ""), unspaced.replace("\n", ""))


REFUSED = "|".join(
    _joined(*words) for words in ((_DENIED, _DENIED_INSIDE), (_DOUBTED, _DOUBTED_INSIDE), (_BOUNDED, _BOUNDED_INSIDE))
)
"""Denies, doubts or bounds the answer in whose clause it stands."""
CHANGED = _joined(_ABOUT, _ABOUT_INSIDE)
"""Rounds or multiplies the number next to it, or asks for it."""
RETRACTED = _joined(_RETRACTED, _RETRACTED_INSIDE)
"""How a sentence begins that takes back what was said before it."""
WRONG = _joined(_WRONG, _WRONG_INSIDE)
"""Says of an answer before it that it is wrong."""


def _ascii_words(*phrases: str) -> frozenset[str]:
    """The first words of the phrases in plain letters. A single letter is left out, because it is not telling."""
    firsts = (phrase.split()[0] for phrase in "|".join(phrases).replace("\n", "").split("|") if phrase.isascii())
    return frozenset(word for word in firsts if len(word) > 1)


ASCII_WORDS = _ascii_words(_DENIED, _DOUBTED, _BOUNDED)
"""The first words of the phrases of REFUSED in plain letters: a fast check for an ASCII text."""
ASCII_RETRACTIONS = _ascii_words(_RETRACTED, _WRONG)

CLAUSE_ENDS = "。．！？；，、।؛،؟：…"

ANSWER = (
    r"(?:bonne\s+)?r[ée]ponse(?:\s+(?:finale|correcte|exacte|juste))?\s{0,3}(?:est(?:\s+donc)?|:|=)"
    r"|antwort\s{0,3}(?:ist(?:\s+(?:also|daher|somit))?|lautet(?:\s+(?:also|daher|somit))?|:|=)|endergebnis\s{0,3}(?:ist|:)"
    r"|respuesta(?:\s+(?:final|correcta))?\s{0,3}(?:es|:|=)|resposta(?:\s+(?:final|correta|certa))?\s{0,3}(?:é|:|=)"
    r"|risposta(?:\s+(?:finale|corretta|esatta))?\s{0,3}(?:è|:|=)|ответ\s{0,3}(?:равен|это|[:=—–-])"
    r"|答案(?:就|应该|應該)?\s{0,3}(?:[:：=]|是|为|為)|(?:^|(?<=[\n\s*。，]))答\s{0,3}[:：]|回答\s{0,3}[:：]|故?[选選]\s{0,3}[:：]?(?=\s?\(?[A-J])"
    r"|(?:答え|解答|正解|回答)\s{0,3}(?:は|[:：=])|(?:정답|해답|답변|(?<![가-힣])답)\s{0,3}(?:은|는|[:：=])"
    r"|(?:उत्तर|जवाब)\s{0,3}(?:है(?:\s{0,3}:)?|[:：=-])?"
    r"|antwoord\s{0,3}(?:is(?:\s+dus)?|luidt|:|=)|odpowied[źz]\s{0,3}(?:to|:|=|brzmi:?)|(?:cevap|yanıt)\s{0,3}[:=]"
    r"|(?:الإجابة|الاجابة|الجواب)(?:\s+(?:النهائي|الصحيح)ة?)?\s{0,3}(?:هو|هي|[:=])"
)
"""Phrases after which the answer stands. A bare value must follow."""
RESULT = (
    r"(?:solution|r[ée]sultat)\s{0,3}(?:finale?\s{0,3})?(?:est(?:\s+donc)?|:)|(?:lösung|ergebnis)\s{0,3}(?:ist|lautet|:)"
    r"|(?:solución|resultado)\s{0,3}(?:es|é|:)|solução\s{0,3}(?:é|:)|(?:soluzione|risultato)\s{0,3}(?:è|:)"
    r"|(?:результат|решение)\s{0,3}[:—–-]|(?:resultaat|uitkomst)\s{0,3}(?:is|:)|wynik\s{0,3}(?:to|:)|sonuç\s{0,3}[:=]|结果\s{0,3}(?:[:：]|是|为)|हल\s{0,3}(?:है|:)|(?:الحل|الناتج|النتيجة)\s{0,3}(?:هو|هي|:)"
    r"|(?:^|(?<=\n))[#*\s]{0,9}(?:the\s+)?(?:final\s+)?(?:result|solution)[*\s]{0,4}[:：]"
)
"""Phrases that can also head a solution. They count if a bare value follows and no phrase of ANSWER is in the text."""
ANSWER_WORDS = (
    "ponse", "antwort", "ergebnis", "respuesta", "resposta", "risposta", "solu", "result", "risult", "antwoord",
    "uitkomst", "odpowied", "wynik", "cevap",
)  # fmt: skip
"""Every phrase in plain letters contains one of these: a fast check for an ASCII text."""

CONCLUSION = (
    r"(?:donc|ainsi|par\s+conséquent|d['’]où|alors|finalement|also|daher|somit|folglich|deshalb|damit|demnach|deswegen"
    r"|por\s+lo\s+tanto|por\s+tanto|así(?:\s+que)?|entonces|luego|por\s+consiguiente|portanto|logo|assim|então|quindi"
    r"|pertanto|dunque|perciò|allora|следовательно|таким\s+образом|значит|итак|поэтому|dus|derhalve|bijgevolg|zatem|więc|stąd|dlatego|ostatecznie|sonuç\s+olarak|dolayısıyla|buna\s+göre|öyleyse)(?!\w)[,\s]*"
    r"|(?:因此|所以|故|综上(?:所述)?|于是|从而|可知|したがって|従って|よって|ゆえに|だから"
    r"|따라서|그러므로|그래서|결국|अतः|अत:|इसलिए|इस\s+प्रकार|إذن|إذا|لذلك|لذا|وبالتالي|بالتالي|ومن\s+ثم)[,，、،\s]*"
)
"""How a concluding sentence begins."""
COPULA = (
    r"(?<!\w)(?:est|sont|vaut|valent|égale?s?|mesure|ist|sind|beträgt|betragen|ergibt|lautet|es|son|vale|mide|é|são|mede"
    r"|è|sono|misura|равна|равно|равен|равны|составляет|bedraagt|luidt|wynosi|wynoszą|to|jest|są)"
    r"(?:\s+(?:donc|also|gleich|de|di|igual\s+a|uguale\s+a|pari\s+a|égale?\s+à|par))?(?!\w)|[为為是](?!否)|等于|等於|[은는이가]\s|は|(?<!\w)(?:هي|هو|تساوي|يساوي)(?!\w)"
)
"""What stands between the subject of a concluding sentence and its value."""
AFTER = (
    r"です|である|であります|だ|となる|となります|になる|になります|입니다|이다|이에요|예요|임|이 된다|가 된다|다"
    r"|है|हैं|होगा|होगी|होता है|olur|dir|dır|dur|dür|olarak bulunur|bulunur"
)
"""What can end a sentence after its value."""
MEASURES = {
    "cm": """
        厘米 公分 センチ センチメートル 센티미터 सेमी सेंटीमीटर سم سنتيمتر см zentimeter centimètres centimètre centímetros
        centimetri
    """,
    "m": "米 公尺 メートル 미터 मीटर متر مترا أمتار м metros mètres mètre metri",
    "km": """
        千米 公里 キロメートル キロ 킬로미터 किमी किलोमीटर كم كيلومتر км kilomètres kilómetros quilômetros chilometri
    """,
    "kg": "千克 公斤 キログラム 킬로그램 किग्रा किलोग्राम كجم كغ кг kilogramos",
    "cm^2": "平方厘米 平方センチメートル 제곱센티미터 см²",
    "m^2": "平方米 平方メートル 제곱미터",
    "h": "小时 時間 시간 घंटे ساعة ساعات часов часа час stunden heures horas ore",
    "min": "分钟 分 분 मिनट دقيقة دقائق минут minuten minutos minuti",
    "s": "秒 秒間 초 सेकंड ثانية секунд sekunden secondes segundos secondi",
    "day": "天 日 日間 일 दिन يوم أيام дней дня tage jours días dias giorni",
    "year": "年 岁 歳 년 살 साल वर्ष سنة лет jahre ans años anos anni",
    "deg": "度 도 डिग्री درجة градусов grad degrés grados graus gradi",
    "yuan": "元",
    "yen": "円",
    "rupee": "रुपये रुपए",
    "dollar": "美元 ドル 달러 डॉलर دولار долларов",
    "euro": "欧元 ユーロ 유로 евро",
    "": """
        个 個 人 种 種 只 本 条 张 次 名 位 件 棵 块 颗 枚 通り つ 匹 回 冊 台 개 명 가지 마리 번 권 장 병 그루 원
        руб рублей
    """,
}
"""Units in other alphabets and languages; words for counted things have no unit."""
UNIT_OF_WORD = {word: unit for unit, words in MEASURES.items() for word in words.split()}

OTHER_QUANTITY = _joined(
    """
non|no(?! total| fim)|ne|nu|jede[rsn]?|jeweils|pro|andere[rsn]?|erste[rsn]?|zweite[rsn]?|dritte[rsn]?|anfangs
|anfang|zunächst|zuerst|ursprünglich|vorher
|angenommen|annahme|wäre|wären|würde|würden|hätte|manche|mal|fall|schritt|prüfen|doppelte|dreifache|halbe
|quadrat von|quadrat der|quadrat des|quadrat einer
|chaque|chacune?|autre|autres|premier|première|deuxième|second|seconde|initialement|début|départ|avant|suppose
|supposons
|serait|seraient|aurait|fois|étape|cas|carré de|au carré|faudrait|certains|si l|s'il
|cada|otro|otra|otros|primer|primero|primera|segundo|segunda|inicialmente|principio|antes|supongamos|suponemos
|sería|serían|habría|veces|paso|caso|cuadrado de|al cuadrado|algunos|tendría|ganaría
|outro|outra|primeiro|primeira|início|suponha|suponhamos|seria|seriam|haveria|vezes|teria|passo|gastaria|alguns
|ogni|ciascun[oa]?|altr[oaie]|prim[oa]|second[oa]|terz[oa]|inizialmente|inizio|prima|supponiamo|sarebbe|sarebbero
|avrebbe|volte
|varrebbe|quadrato di|al quadrato|alcuni
|кажд\\w+|друг\\w+|перв\\w+|втор\\w+|трет\\w+|сначала|изначально|раньше|предположим|пусть|бы|раз|шаг|случа\\w+
|квадрат|некоторые
|elke?|ieder[e]?|ander|andere|eerste|tweede|derde|aanvankelijk|oorspronkelijk|begin|eerder|stel|keer|stap|geval
|kwadraat|sommige
|każd\\w+|inn[yaei]\\w*|pierwsz\\w+|drug[aie]\\w*|początk\\w+|najpierw|załóżmy|niech|razy|krok\\w*|przypad\\w+
|kwadrat\\w*|niektóre
|her|her biri|diğer|başka|ilk|ikinci|birinci|üçüncü|başlangıçta|önce|varsayalım|kez|adım|durum\\w*|karesi|bazı
|olurdu|sonra
|fehlt|fehlen|manque|manquent|faltan|mancano|manca|ontbreken|brakuje|eksik
|nahe|nah|übersteigt|überschreitet|sagt|meint|behauptet|glaubt|denkt|überprüfen|testen|prüft|fälle[n]?|schritte[n]?|teilbar
|vielfaches|dépasse(?:nt)?|proche|excède|dit|affirme|prétend|pense|croit|vérifie|vérifions|teste|testons|essaie|étapes|divisible
|multiple|superan?|excede|cercan[oa]|dice|dicen|afirma|cree|piensa|comprobamos|probamos|verificamos|casos|pasos|múltiplo
|ultrapassa|próxim[oa]|diz|acha|pensa|passos|divisível|eccede|vicin[oa]|afferma|crede|verifichiamo|proviamo|casi|passaggi
|divisibile|multiplo|превыша\\w+|близк\\w+|говорит|думает|считает|утверждает|провер\\w+|шаг\\w+|делится|кратн\\w+|удвоен\\w+
|overschrijdt|overtreft|dichtbij|zegt|beweert|controleren|gevallen|stappen|deelbaar|veelvoud|dubbele?|blisk\\w+|przekracza
|mówi|twierdzi|myśli|uważa|sprawdz\\w+|sprawdź\\w+|podzieln\\w+|wielokrotno\\w+|podwoj\\w+|aşıyor|diyor|söylüyor|düşünüyor
|deneyelim|bölünür|katı|katıdır|يقول|يظن|مضاعف|يقبل
|كل|آخر|أخرى|الأول|الأولى|الثاني|الثانية|البداية|نفرض|لنفرض|خطوة|حالة|مربع
""",
    """
每(?!小时|小時|分|秒|天|公里)|各(?!自)|另|其他|其它|第|最初|原来|原來|起初|开始|開始|假设|假設|设|設|若|步
|平方(?!厘米|米|千米|公里|公分|根|センチ|メートル|キロ)|立方(?!厘米|米|分米)|之前|以前
|以后|之后|後|二乗|一つ|他の|別|初め|はじめ|仮定|ステップ|処음|처음|첫|둘째|다른|각각|매|가정|단계|경우|제곱(?!센티
|미터|근)|हर|प्रत्येक|दूसर|पहल|शुरू|मान\\s|चरण|वर्ग(?!\\s?(?:सेमी|मी))
|说(?!明)|說(?!明)|认为|認為|觉得|整除|割り切|と言|と思|말했|말한|생각|나누어|배수|कहत|सोचत|विभाज्य|गुणज
|次元|缺|差(?!不)|足りない|부족|番目|回目|번째|种情况
""",
)
"""Speaks of each, another, an earlier or a supposed quantity."""
FOREIGN_WORDS = words_of_text(
    """
    der das des dem den ein eine ist sind beträgt ergibt lautet wir sie er braucht kostet also daher somit insgesamt
    gesuchte le la les il elle un une donc est vaut du au obtient faut coûte el los las lo ella un una es son por
    necesita cuesta gana um uma ela ele logo portanto gastou custa gli uno è vale serve servono costa quindi het een
    dus zij hij bedraagt kost jest wynosi zatem więc liczba szukana potrzebuje kosztuje olarak sonuç göre buna
    toplam eder
    das im zum auf für mit von bei nach aus auch noch es bleiben bleibt gibt haben hat sind folgt liefert
    ergeben wird werden
    zusammen erhalten erhält bekommt bekommen daraus teilen durch umformen
    les des aux avec pour dans sur ils elles y ont reste restent trouve avons obtient tout ainsi alors ce cette nous
    en del con para por hay tiene tienen quedan queda obtenemos obtiene entonces luego se que como nos su sus
    uns das dos ao na há tem têm sobram sobra restam resta temos obtemos obtém então seu
    di del della dei nel nella ci sono rimangono restano ha hanno si ottiene otteniamo tutto totale dunque perciò da
    de er ze hebben heeft blijven samen totaal krijgen zijn wij daarom voor van aan
    mają ma razem łącznie zostało zostaje jest klasie otrzymujemy w na z się ile
    var vardır bir ve bu için toplamda kalır eder demek elde harcar
    """
)
"""Words that show that a sentence in Latin letters is not English."""
ENGLISH_WORDS = words_of_text(
    """
    the are and we it this that has have she they there which with get you your not for from its their he his her
    was were
    """
)
NOT_BEFORE_VALUE = _joined(
    """
dan|als|que|che|niż|чем|wie|como|come|jak|comme|für|nach|vor|um|von|mit|bei|seit|bis|aus|zu|in|an|am|im|auf|durch
|gegen|ohne|nummer|nr|gleichung|aufgabe|teil|pour|après|avant|de|par|avec
|dans|depuis|sans|en|à|sur|entre|numéro|équation|partie|para|después de|por|con|desde|hasta|sin|a|al|com|em|até
|desde|sem|número|ecuación
|per|dopo|di|da|tra|fra|senza|su|equazione|numero|через|после|для|до|от|из|за|на|в|без|номер|voor|na|met|bij|van
|door|op|uit|zonder
|tot|vergelijking|dla|po|przez|przed|z|ze|od|do|o|w|bez|numer|równanie|عن|من|في|بعد|قبل|على|mehr|weniger|plus|moins
|más|menos|mais|più|meno
|более|менее|meer|minder|więcej|mniej|daha|için|und|et|y|e|i|и|en|ve|و
""",
    "",
)
"""Words directly before a number that make it something else than the value of its sentence."""
VALUE_OF = _joined(
    """
il y a|y a|hebben ze|precisa de|precisam de|besoin de|dispose de|est de|vaut|égale? à|égale à|s'élève à
|est égale? à|es de|igual a|es igual a|é de
|é igual a|è di|pari a|uguale a
|è pari a|è uguale a|równa się|jest równ[aey]|wynosi
""",
    "",
)
OPERATION = _joined(
    """
kann|können|könnte|peut|peuvent|puede|pueden|pode|podem|può|possono|kan|kunnen|mogą|могут|\\w+[ae]bilir|\\w+[ae]bilirler|addier\\w*|subtrahier\\w*|multiplizier\\w*|dividier\\w*|setze\\w*|einsetzen|wähle\\w*|betrachte\\w*|ajout\\w+|soustra\\w+|multipli\\w+|divis[ou]\\w*|posons|considérons
|sumamos|restamos|multiplicamos|dividimos|consideramos|elegimos|somamos|subtraímos|dividimos|multiplicamos|consideremos|aggiungiamo|sottraiamo|moltiplichiamo|dividiamo|consideriamo|прибав\\w+|вычт\\w+|умнож\\w+|раздел\\w+|подстав\\w+|рассмотр\\w+
|optellen|aftrekken|vermenigvuldig\\w*|delen|dodajemy|odejmujemy|mnożymy|dzielimy|ekleriz|çıkarırız|çarparız
|böleriz|plus|mehr|davantage|de plus|de más|a mais|in più|больше|meer|więcej|daha|länger|kürzer
|zu viel|zu wenig|de trop|de menos|di meno|wollte|wollten|voulait|voulaient|quería|querían|queria|voleva|wilde
|chciał\\w*|хотел\\w*|istiyordu
""",
    """
乘以|除以|加上|减去|減去|代入|取|考虑|考慮|足す|引く|掛け|割る|割り|代入|考え|더하|곱하|나누|빼면|빼고|대입|고려|जोड़|घटा|गुणा|भाग|打算|想|つもり|予定|싶|려고|चाहत
""",
)
"""An operation, a comparison or a wish, which states no result."""
TOTALS = (
    r"(?:en\s+total|au\s+total|en\s+tout|insgesamt|zusammen|im\s+ganzen|lang|hoch|breit|alt|no\s+total|ao\s+todo|em\s+total|in\s+totale"
    r"|in\s+tutto|всего|в\s+сумме|in\s+totaal|samen|łącznie|razem|w\s+sumie|eder|olur|dir|dır|dur|dür|bulunur|olarak\s+bulunur)"
)
"""What can stand at the end of a sentence after its value."""
