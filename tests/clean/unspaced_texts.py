"""Made prose of languages written without spaces: sentences of random words, so that no two documents are alike."""

from __future__ import annotations

import random

WORDS = {
    "ja": (
        "私 彼女 学校 先生 図書館 昨日 明日 天気 電車 駅 会社 仕事 友達 家族 食事 料理 野菜 魚 山 川 海 旅行 "
        "写真 音楽 映画 新聞 言葉 意味 歴史 文化 経済 政治 問題 研究 大学 学生 町 村 道 橋 春 夏 秋 冬 朝 "
        "夜 時間 場所 理由 結果 コンピューター ニュース データ 歩く 見る 聞く 読む 書く 食べる 飲む 行く 来る "
        "帰る 思う 考える 話す 使う 作る 美しい 大きい 新しい 古い 静かな とても もう まだ そして しかし それから "
    ),
    "zh": (
        "我们 学校 老师 图书馆 昨天 明天 天气 火车 车站 公司 工作 朋友 家庭 吃饭 蔬菜 山 河 大海 旅行 照片 "
        "音乐 电影 报纸 语言 意义 历史 文化 经济 政治 问题 研究 大学 学生 城市 村庄 道路 春天 夏天 秋天 冬天 "
        "早上 晚上 时间 地方 理由 结果 计算机 新闻 数据 走 看 听 读 写 吃 喝 去 来 回家 觉得 思考 说话 使用 "
        "制造 美丽 大 新 旧 安静 非常 已经 还 但是 然后 因为 所以 "
    ),
    "th": (
        "ฉัน เธอ โรงเรียน ครู ห้องสมุด เมื่อวาน พรุ่งนี้ อากาศ รถไฟ สถานี บริษัท งาน เพื่อน ครอบครัว อาหาร "
        "ผัก ปลา ภูเขา แม่น้ำ ทะเล เดินทาง ภาพถ่าย ดนตรี ภาพยนตร์ หนังสือพิมพ์ ภาษา ความหมาย ประวัติศาสตร์ "
        "วัฒนธรรม เศรษฐกิจ การเมือง ปัญหา วิจัย มหาวิทยาลัย นักเรียน เมือง หมู่บ้าน ถนน สะพาน เช้า กลางคืน "
        "เวลา สถานที่ เหตุผล ผลลัพธ์ เดิน ดู ฟัง อ่าน เขียน กิน ดื่ม ไป มา คิด พูด ใช้ ทำ สวยงาม ใหญ่ ใหม่ "
        "เก่า เงียบ มาก แล้ว ยัง แต่ และ เพราะ "
    ),
}
PARTICLES = {
    "ja": ("は", "が", "を", "に", "で", "と", "も", "の", "から"),
    "zh": ("的", "了", "在", "和", ""),
    "th": ("",),
}
ENDS = {"ja": ("です。", "ました。", "ます。"), "zh": ("。",), "th": (" ",)}


def prose(language: str, seed: int, n_characters: int = 2000) -> str:
    """A document of so many characters, in paragraphs of some ten sentences."""
    chance = random.Random(f"{language} {seed}")
    text, words = "", WORDS[language].split()
    while len(text) < n_characters:
        for _ in range(10):
            for _ in range(chance.randrange(5, 12)):
                text += chance.choice(words) + chance.choice(PARTICLES[language])
            text += chance.choice(ENDS[language])
        text = text.strip() + "\n"
    return text[: n_characters - 1] + ENDS[language][0][-1]


def edited(text: str, language: str, seed: int, share: float = 0.05, passages: int = 4) -> str:
    """The text with `share` of its characters replaced, in a few passages of equal length."""
    chance = random.Random(seed)
    length = round(len(text) * share / passages)
    for i in range(passages):
        start = len(text) * i // passages + chance.randrange(len(text) // passages - length)
        text = text[:start] + prose(language, 10_000 + chance.randrange(10**6), length) + text[start + length :]
    return text
