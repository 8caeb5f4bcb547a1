-- KEYS lock
-- ARGV fence, by, detail, journal, ''
-- answers {1, 1}
--
-- Behind journal.lua: somebody's guard has refused a fence.

note('refused', KEYS[1], ARGV[1], short(ARGV[2]), ARGV[3])
return {1, 1}
