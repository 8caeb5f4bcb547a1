-- KEYS lock, fence, marker
-- ARGV fence_ttl_ms, marker
-- answers {1, fence} deleted · {-3} absent · {-1} stranger · {-4} another kind

if refusal and refusal[1] == STRANGER then return refusal end
if not seen[1] and redis.call('EXISTS', KEYS[1]) == 1 then return {OTHER_KIND} end
redis.call('DEL', KEYS[1])
local fence = (tonumber(seen[2]) or 0) + 1
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[1])
if seen[1] then return {1, fence} end
return {ABSENT}
