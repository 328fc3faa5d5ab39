A bridge of rope made by hand now joins two villages in the mountains. It replaces one that a flood carried away.

Sixty people worked on it for nine days. Children used to walk three hours to school. Now they need twenty minutes.

@highlight

Villagers build rope bridge in nine days

@highlight

Children's way to school shrinks to twenty minutes
