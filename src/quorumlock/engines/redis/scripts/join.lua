-- KEYS marker
-- ARGV verb (join, enter, survey, init, close, force), format, fleet, nodes, max_ttl_ms, durable, quarantine, least_ms
-- answers {status, marker, now_us, run_id, role, mode, maxmemory, maxmemory_policy}
--   status: known · new · restarted · closed · misfit · free (there is no marker: it is written by `enter`, not by
--   `join`) · marked (there is one: nothing was changed)
--
-- The marker is one line of words:
--   ready_at span_ms format fleet nodes max_ttl_ms durable quarantine identity
-- `ready_at` is when quarantine ends, in µs of this node's time; it is never further away than `span_ms`. A node that
-- is CLOSED grants nothing, for however long, until it is forced: a fleet is changed by closing all of its nodes
-- first, so that the span of each begins when nobody can extend a lock of the old fleet any more. `least_ms` is the
-- longest span of all of them; a node that is new cannot know it. In place of an identity, a closed node remembers the
-- fleet it was taken from, `from:fleet:nodes`.
-- Identity is run id and, where there is a quarantine, replication id: it changes when the server restarts and when
-- its role does. The scripts compare the latter on every request: a server that was a replica for a moment, and has
-- the memory of another now, tells its clients nothing of it.

local verb, format, fleet, nodes, max_ttl_ms, durable, quarantine, least_ms = unpack(ARGV)

local CLOSED = 9007199254740991 -- a time that does not come

local function field(info, name)
  if type(info) ~= 'string' then return '' end -- INFO was denied
  return string.match(info, '\n' .. name .. ':([^\r\n]*)') or ''
end

local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local info = redis.pcall('INFO')
local run_id = field(info, 'run_id')
local identity = 'unknown'
if run_id ~= '' then
  identity = string.sub(redis.sha1hex(run_id), 1, 16)
  if quarantine == '1' then identity = identity .. '-' .. string.sub(field(info, 'master_replid'), 1, 16) end
end

local function answer(status, marker)
  local mode = field(info, 'server_mode') -- of Valkey; it calls itself redis where it is told to
  if mode == '' then mode = field(info, 'redis_mode') end
  return {status, marker or '', string.format('%.0f', now), run_id, field(info, 'role'), mode,
    field(info, 'maxmemory'), field(info, 'maxmemory_policy')}
end

local function write(status, ready_at, span_ms)
  local marker = string.format('%.0f %.0f %s %s %s %s %s %s %s', ready_at, span_ms, format, fleet, nodes, max_ttl_ms,
    durable, quarantine, identity)
  redis.call('SET', KEYS[1], marker)
  return answer(status, marker)
end

local marker = redis.call('GET', KEYS[1])
if verb == 'survey' then return answer(marker and 'marked' or 'free', marker) end
if field(info, 'role') ~= 'master' and run_id ~= '' then return answer('misfit', marker) end -- a replica

local wait_ms = quarantine == '1' and tonumber(max_ttl_ms) or 0
if verb == 'init' and marker then return answer('marked', marker) end
if verb == 'init' then return write('new', now, wait_ms) end

local words = {}
for word in string.gmatch(marker or '', '%S+') do words[#words + 1] = word end
local old_ready_at, old_span_ms, old_format, old_fleet, old_nodes, old_max_ttl_ms, old_durable, old_quarantine,
  old_identity = unpack(words)

local closed = tonumber(old_ready_at) == CLOSED
local ours = old_fleet == fleet and old_nodes == nodes

if verb == 'close' then
  if (tonumber(old_format) or 0) > tonumber(format) then return answer('misfit', marker) end
  if closed and not ours then return answer('marked', marker) end -- by another change, which is not over
  -- Locks of the old fleet may be alive, and of those before it if it is waiting for them: nothing is granted until
  -- the longest of them is over.
  local left_ms, span_ms = ((tonumber(old_ready_at) or 0) - now) / 1000, tonumber(old_span_ms) or 0
  wait_ms = math.max(wait_ms, tonumber(old_max_ttl_ms) or 0, math.ceil(math.min(left_ms, span_ms)))
  identity = string.format('from:%s:%s', old_fleet or '', tonumber(old_nodes) or 0)
  if ours then identity = closed and old_identity or 'from::0' end
  return write('closed', CLOSED, wait_ms)
end

if verb == 'force' then
  if not closed or not ours then return answer('marked', marker) end -- another change came between
  wait_ms = math.max(wait_ms, tonumber(old_span_ms), tonumber(least_ms or 0))
  return write('new', now + wait_ms * 1000, wait_ms)
end

if not marker and verb == 'join' then return answer('free') end
if not marker then return write('new', now + wait_ms * 1000, wait_ms) end
if old_format ~= format or old_fleet ~= fleet or old_nodes ~= nodes or old_quarantine ~= quarantine then
  return answer('misfit', marker)
end
if quarantine == '1' and (old_max_ttl_ms ~= max_ttl_ms or old_durable ~= durable) then
  return answer('misfit', marker)
end

if closed then return answer('closed', marker) end

-- Without quarantine clients may differ in max_ttl: remembered is the longest, for whoever changes the fleet.
local longer = tonumber(max_ttl_ms) > tonumber(old_max_ttl_ms)
if not longer then max_ttl_ms = old_max_ttl_ms end

-- Never further away than the span, should the node's clock have stepped back.
local span_ms = tonumber(old_span_ms)
local ready_at = math.min(tonumber(old_ready_at), now + span_ms * 1000)
if old_identity ~= identity and durable ~= '1' then
  return write('restarted', math.max(ready_at, now + wait_ms * 1000), math.max(span_ms, wait_ms))
end
if old_identity ~= identity or longer or ready_at < tonumber(old_ready_at) then
  return write('known', ready_at, span_ms)
end
return answer('known', marker)
