The national team lost its last match of the season by three goals to one. Coach Petra Lund will resign in June.

She had led the team for six years. Two players were injured. The association has not named a successor.

@highlight

National team loses last match

@highlight

Coach Petra Lund resigns in June after six years
