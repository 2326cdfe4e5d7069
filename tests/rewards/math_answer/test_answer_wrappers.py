"""Laws of the words around an answer: no wrapper that denies, doubts, bounds, lists or retracts is paid."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansatz.rewards.math_answer import verify

DENIED = {
    "en": "The answer is not {}.|The answer cannot be {}.|It is not {}.|{} is not the answer.|The answer is never {}."
    "|The median is not {}.|So the median isn't {}.",
    "fr": "La réponse n'est pas {}.|La réponse {} est fausse.|Donc l'aire n'est pas {}.",
    "de": "Die Antwort ist nicht {}.|Die Antwort kann nicht {} sein.|Also ist die Fläche nicht {}.",
    "es": "La respuesta no es {}.|La respuesta nunca es {}.|Por lo tanto, el área no es {}.",
    "pt": "A resposta não é {}.|Portanto, a área não é {}.",
    "it": "La risposta non è {}.|Quindi l'area non è {}.",
    "ru": "Ответ: не {}.|Следовательно, площадь не равна {}.",
    "zh": "答案不是{}。|因此，面积不是{}。",
    "ja": "答えは{}ではありません。|よって、面積は{}ではない。",
    "ko": "정답은 {}이 아닙니다.|따라서 넓이는 {}이 아니다.",
    "hi": "उत्तर {} नहीं है।|अतः क्षेत्रफल {} नहीं है।",
    "ar": "الجواب ليس {}.|إذن المساحة ليست {}.",
    "nl": "Het antwoord is niet {}.|Dus de oppervlakte is niet {}.|De som is nooit {}.",
    "pl": "Odpowiedź: nie {}.|Zatem pole nie wynosi {}.|Suma nie jest równa {}.",
    "tr": "Cevap {} değildir.|Cevap: {} değil.|Sonuç olarak toplam {} değildir.",
}
BOUNDED = {
    "en": "The answer is at least {}.|The answer is less than {}.|The answer exceeds {}."
    "|The median is under {}.|So she needs more than {} eggs.",
    "fr": "La réponse est inférieure à {}.|La réponse est au moins {}.|La réponse est plus grande que {}.",
    "de": "Die Antwort ist kleiner als {}.|Die Antwort ist mindestens {}.|Die Antwort ist größer als {}.",
    "es": "La respuesta es menor que {}.|La respuesta es al menos {}.|La respuesta es más de {}.",
    "pt": "A resposta é menor que {}.|A resposta é pelo menos {}.",
    "it": "La risposta è minore di {}.|La risposta è almeno {}.",
    "ru": "Ответ: меньше {}.|Ответ: не менее {}.",
    "zh": "答案小于{}。|答案至少是{}。",
    "ja": "答えは{}未満です。|答えは{}以上です。",
    "ko": "정답은 {}보다 작다.|정답은 {} 이상입니다.",
    "hi": "उत्तर {} से कम है।|उत्तर कम से कम {} है।",
    "ar": "الجواب أقل من {}.|الجواب أكبر من {}.",
    "nl": "Het antwoord is minder dan {}.|Dus de oppervlakte is groter dan {}.|De som is minstens {}.",
    "pl": "Odpowiedź: mniej niż {}.|Zatem pole wynosi co najmniej {}.|Suma jest większa niż {}.",
    "tr": "Cevap: en az {}.|Sonuç olarak toplam en fazla {}.",
}
DOUBTED = {
    "en": "The answer is maybe {}.|The answer might be {}.|Perhaps {}.|The answer is {}, I guess."
    "|The median might be {}.",
    "fr": "La réponse est peut-être {}.|La réponse est probablement {}.",
    "de": "Die Antwort ist vielleicht {}.|Die Antwort ist wahrscheinlich {}.",
    "es": "La respuesta es quizás {}.|La respuesta es tal vez {}.",
    "pt": "A resposta é talvez {}.|A resposta é provavelmente {}.",
    "it": "La risposta è forse {}.|La risposta è probabilmente {}.",
    "ru": "Ответ: возможно, {}.|Ответ: наверное {}.",
    "zh": "答案可能是{}。|答案也许是{}。",
    "ja": "答えはたぶん{}です。|答えは{}かもしれない。",
    "ko": "정답은 아마 {}입니다.|정답은 {}일 수도 있습니다.",
    "hi": "उत्तर शायद {} है।",
    "ar": "الجواب ربما {}.",
    "nl": "Het antwoord is misschien {}.|De som is waarschijnlijk {}.|De som zou {} zijn.",
    "pl": "Odpowiedź: być może {}.|Suma wynosi chyba {}.|Suma wynosiłaby {}.",
    "tr": "Cevap: belki {}.|Toplam muhtemelen {}.",
}
LISTED = {
    "en": "The answer is {} or {}.|Either {} or {}.|{}, {}|{} and {}",
    "fr": "La réponse est {} ou {}.",
    "de": "Die Antwort ist {} oder {}.",
    "es": "La respuesta es {} o {}.",
    "pt": "A resposta é {} ou {}.",
    "it": "La risposta è {} o {}.",
    "ru": "Ответ: {} или {}.",
    "zh": "答案是{}或{}。",
    "ja": "答えは{}または{}です。",
    "ko": "정답은 {} 또는 {}입니다.",
    "hi": "उत्तर {} या {} है।",
    "ar": "الجواب هو {} أو {}.",
    "nl": "Het antwoord is {} of {}.|Dus de som is {} of {}.",
    "pl": "Odpowiedź: {} lub {}.|Zatem suma wynosi {} albo {}.",
    "tr": "Cevap: {} veya {}.",
}
RETRACTED = {
    "en": "The answer is {}. Wait, no.|The answer is {}. That is wrong.|The answer is {}. No, it is 0.",
    "fr": "La réponse est {}. Non.|La réponse est {}. C'est faux.",
    "de": "Die Antwort ist {}. Nein.|Die Antwort ist {}. Das ist falsch.",
    "es": "La respuesta es {}. Espera.|La respuesta es {}. Eso es incorrecto.",
    "pt": "A resposta é {}. Não.|A resposta é {}. Na verdade, é outra.",
    "it": "La risposta è {}. Aspetta.|La risposta è {}. È sbagliato.",
    "ru": "Ответ: {}. Нет.|Ответ: {}. Это неверно.",
    "zh": "答案是{}。不对。|答案是{}。等等。",
    "ja": "答えは{}です。いいえ。|答えは{}です。間違いです。",
    "ko": "정답은 {}입니다. 아니.|정답은 {}입니다. 틀렸습니다.",
    "hi": "उत्तर {} है। नहीं।|उत्तर {} है। यह गलत है।",
    "ar": "الجواب هو {}. لا.|الجواب هو {}. هذا خطأ.",
    "nl": "Het antwoord is {}. Nee.|Het antwoord is {}. Dat klopt niet.",
    "pl": "Odpowiedź: {}. Nie.|Odpowiedź: {}. To błąd.",
    "tr": "Cevap: {}. Hayır.|Cevap: {}. Bu yanlış.",
}
PLAIN = {
    "en": "The answer is {}.|Answer: {}|Therefore, the area is {}.|We get {}.|**Answer:** {}"
    "|The median is {}.|This amounts to {}.",
    "fr": "La réponse est {}.|Réponse : {}|Donc l'aire est {}.",
    "de": "Die Antwort ist {}.|Antwort: {}|Daher ist die Fläche {}.",
    "es": "La respuesta es {}.|Respuesta: {}|Por lo tanto, el área es {}.",
    "pt": "A resposta é {}.|Resposta: {}|Portanto, a área é {}.",
    "it": "La risposta è {}.|Risposta: {}|Quindi l'area è {}.",
    "ru": "Ответ: {}.|Следовательно, площадь равна {}.",
    "zh": "答案是{}。|答案：{}|因此，面积为{}。",
    "ja": "答えは{}です。|答え：{}|したがって、面積は{}です。",
    "ko": "정답은 {}입니다.|정답: {}|따라서 넓이는 {}이다.",
    "hi": "उत्तर {} है।|उत्तर: {}|अतः क्षेत्रफल {} है।",
    "ar": "الجواب هو {}.|الإجابة: {}|إذن المساحة هي {}.",
    "nl": "Het antwoord is {}.|Antwoord: {}|Dus de oppervlakte is {}.|De som bedraagt {}.",
    "pl": "Odpowiedź: {}|Zatem pole wynosi {}.|Szukana liczba to {}.",
    "tr": "Cevap: {}|Sonuç olarak toplam {} olur.",
}
NUMBERS = st.integers(min_value=2, max_value=999).map(str)
FORMS = st.sampled_from(["{}", "${}$", "\\boxed{{{}}}", "$\\boxed{{{}}}$", "**{}**", "\\({}\\)"])
MODES = st.sampled_from(["strict", "anchored"])
LANGUAGES = sorted(PLAIN)


def templates(table: dict[str, str], language: str) -> st.SearchStrategy[str]:
    return st.sampled_from(table[language].split("|"))


@pytest.mark.parametrize(
    "table", [DENIED, BOUNDED, DOUBTED, RETRACTED], ids=["denied", "bounded", "doubted", "retracted"]
)
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_wrapper_that_takes_an_answer_away_is_paid(table: dict[str, str], language: str):
    @settings(max_examples=60, deadline=None)
    @given(templates(table, language), NUMBERS, FORMS, MODES)
    def holds(template: str, number: str, form: str, mode: str):
        response = template.format(form.format(number))
        assert not verify(number, response, mode=mode), response  # pyright: ignore[reportArgumentType]

    holds()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_list_of_two_answers_is_not_paid_for_one_of_them(language: str):
    @settings(max_examples=60, deadline=None)
    @given(templates(LISTED, language), NUMBERS, NUMBERS, FORMS, MODES)
    def holds(template: str, number: str, other: str, form: str, mode: str):
        response = template.format(form.format(other), form.format(number))
        assert number == other or not verify(number, response, mode=mode), response  # pyright: ignore[reportArgumentType]

    holds()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_plain_announcement_is_paid_in_every_language_and_form(language: str):
    @settings(max_examples=60, deadline=None)
    @given(templates(PLAIN, language), NUMBERS, FORMS)
    def holds(template: str, number: str, form: str):
        response = template.format(form.format(number))
        assert verify(number, response, mode="anchored"), response
        assert not verify(str(int(number) + 1), response, mode="anchored"), response

    holds()


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([phrases.split("|")[0] for phrases in PLAIN.values()]), NUMBERS, NUMBERS)
def test_a_later_announcement_of_another_value_takes_a_box_back(template: str, number: str, other: str):
    response = f"\\boxed{{{number}}}\n{template.format(other)}"
    assert bool(verify(number, response)) == (number == other), response
