Doctors at the university hospital have used a printed bone in surgery for the first time. The patient, a cyclist, had broken his jaw.

The bone was made of titanium within two days. He could eat again after a week. The method costs less than the usual one.

@highlight

Doctors use printed bone to repair jaw

@highlight

Patient could eat after a week
