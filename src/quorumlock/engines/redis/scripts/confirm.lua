-- KEYS lock, fence, marker
-- ARGV token, granted, fence, fence_ttl_ms, marker
-- answers {1, fence} raised · {-5} granted again since · {-1} stranger · {-2, ms} quarantine

if refusal then return refusal end
if seen[1] ~= ARGV[1] or tonumber(seen[2]) ~= tonumber(ARGV[2]) then return {CHANGED} end
local fence = math.max(tonumber(seen[2]), tonumber(ARGV[3]))
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[4])
return {1, fence}
