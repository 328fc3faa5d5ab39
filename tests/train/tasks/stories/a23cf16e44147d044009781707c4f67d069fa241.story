A ferry ran aground near Port Vell on Tuesday evening with 212 people on board. Nobody was hurt.

The captain said that a strong current had pushed the ship toward the rocks. Two tugboats pulled it free at high tide. The harbour office has opened an inquiry.

@highlight

Ferry with 212 people runs aground near Port Vell

@highlight

Nobody hurt; tugboats freed the ship at high tide
