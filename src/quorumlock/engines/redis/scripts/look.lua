-- KEYS lock, fence, marker
-- ARGV shared (1 or 0), marker
-- answers {1, fence} free · {0, pttl, fence} held · {-1} stranger · {-2, ms} quarantine · {-4} another kind

if refusal then return refusal end
if seen[1] and not (ARGV[1] == '1' and seen[1] == READERS) then return {0, redis.call('PTTL', KEYS[1]), stored} end
if not seen[1] and redis.call('EXISTS', KEYS[1]) == 1 then return {OTHER_KIND} end
return {1, stored}
