-- Bind an idempotency key, unless it is bound.
--
-- KEYS     the key, a HASH of value and run; and if it belongs to a run of this partition its
--          wf:ID:keys and idx:keyed
-- ARGV[2]  msgpack: name (of the key), value, run (or nil), is_here (whether the run is)
-- Returns  {"bound"} if this call bound it, else {"taken", value, run or ""}

-- include: prelude
-- include: deletions

local args = cmsgpack.unpack(ARGV[2])
local key = at(args.name)
local value = call('HGET', key, 'value')
if value and is_being_deleted(call('HGET', key, 'run') or '', false) then
    return { 'want', missing }
end
if value then
    return { 'taken', value, call('HGET', key, 'run') or '' }
end
call('HSET', key, 'value', args.value)
if args.run then
    call('HSET', key, 'run', args.run)
    if args.is_here then
        call('SADD', at('wf:' .. encoded(args.run) .. ':keys'), context.part .. ' ' .. args.name)
        call('ZADD', at('idx:keyed'), '0', args.run)
    end
end
return { 'bound' }
