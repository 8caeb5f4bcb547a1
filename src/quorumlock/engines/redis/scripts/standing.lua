-- Prepended to every script over the three keys of a lock: what the node holds, and whether it may vote.
-- The last ARGV is the marker (see join.lua) as the client knows it, `ready_at span_ms …`.
-- Statements, not functions: closures, made anew on every call, were a tenth of what a script costs.

local STRANGER, QUARANTINE, ABSENT, OTHER_KIND, CHANGED = -1, -2, -3, -4, -5
local READERS = 'ql:readers' -- what the lock is set to while it is shared

local lock, fence_key, slot, left_ms = KEYS[1], KEYS[2]
local seen = redis.call('MGET', lock, fence_key, KEYS[3]) -- lock, fence, marker
local stored = tonumber(string.match(seen[2] or '', '^%d+')) or 0 -- behind the fence stands who was given it
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]

local refusal -- nil when this node may vote; else the answer that says why not
if seen[3] ~= ARGV[#ARGV] then
  refusal = {STRANGER}
else
  local left_us = string.match(seen[3], '^%d+') - now
  if left_us > 0 then
    local span_ms = string.match(seen[3], '^%d+ (%d+)')
    -- Further away than it ever can be: the clock stepped back, and joining again will cap it.
    refusal = left_us > span_ms * 1000 and {STRANGER} or {QUARANTINE, math.ceil(left_us / 1000)}
  end
  local id = string.match(seen[3], '%-%x+$')
  if id and not string.find(redis.call('INFO', 'replication'), 'master_replid:' .. string.sub(id, 2), 1, true) then
    refusal = {STRANGER}
  end
end
