-- KEYS lock, fence, marker
-- ARGV marker
-- answers {1, fence} free · {0, pttl, fence} held · {-1} stranger · {-2, ms} quarantine · {-4} another kind

if refusal then return refusal end
if seen[1] then return {0, redis.call('PTTL', KEYS[1]), tonumber(seen[2]) or 0} end
if redis.call('EXISTS', KEYS[1]) == 1 then return {OTHER_KIND} end
return {1, tonumber(seen[2]) or 0}
