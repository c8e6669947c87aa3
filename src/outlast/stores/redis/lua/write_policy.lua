-- Write the policy of a queue. First each partition records the home partition of the scope: from then on it
-- leases no task without a slot, and tasks in flight get one. Then the home partition stores the policy.
--
-- ARGV[2]  msgpack: scope, and
--          mark   home, nonce: record the home here; tasks in flight get tickets
--          write  rules (bytes or nil), limits (msgpack), declared (bytes or nil), change (bytes), kept (how many
--                 changes stay), has_seen and seen (bytes or nil: the policy to replace), slots (a list of
--                 {task, slot} that the partitions have returned): store them here
-- Returns  {"want", keys}, {"same"} if the code has declared that before, {"changed"} if the policy is not the one
--          that was seen, or {"done", {{task, slot}, …}}, a slot being msgpack
--
-- policy:audit:SCOPE  LIST  "TIME " and the bytes of a change, the last one first

-- include: prelude
-- include: prefixes
-- include: runs
-- include: tasks
-- include: policy

local args = cmsgpack.unpack(ARGV[2])
local scope, write = args.scope, args.write
local audit = 'policy:audit:' .. encoded(scope)
need_policy()
if write then
    need(audit)
end
if #missing > 0 then
    return { 'want', missing }
end
if write and write.declared and call('HGET', at('policy:declared'), scope) == write.declared then
    return { 'same' }
end
if write and write.has_seen and (call('HGET', at('policy:rules'), scope) or nil) ~= write.seen then
    return { 'changed' }
end

local function adopt_slot(name, slot)
    local before = find_slot(name)
    if not before or before.ticket == slot.ticket then
        slot.at = before and before.at or now_text
        save_slot(name, slot)
    end
end

local reported = {}

-- A task in flight: with the ticket that it has, or a new one.
local function report(name, task, mark)
    if not task.ticket then
        task.ticket, task.home = mark.nonce .. ':' .. int(#reported), mark.home
        save_task(name, task)
    end
    local is_abroad = not is_here(mark.home)
    local ends = task['until']
    if ends and is_abroad then
        ends = int(tonumber(ends) + 2 * SKEW)
    end
    local slot = slot_of(task, ends)
    if is_abroad then
        reported[#reported + 1] = { name, cmsgpack.pack(slot) }
    else
        adopt_slot(name, slot)
    end
end

if args.mark then
    call('HSET', at('policy:homes'), scope, args.mark.home)
    for _, pair in ipairs(prefixes_in(at('task:held'))) do
        local frame = pair[1]
        if scope_of(sub(frame, 9)) == scope then
            reclaim_expired(frame)
            for _, member in ipairs(call('ZRANGEBYLEX', at('task:held'), '[' .. frame,
                '(' .. frame .. '\255')) do
                local name = sub(member, #frame + 22)
                report(name, find_task(name), args.mark)
            end
        end
    end
    for _, name in ipairs(call('ZRANGE', at('fair:asleep'), 0, -1)) do
        local fair_key = find_fair_key(name)
        if scope_of(fair_key.queue) == scope then
            set_wake_time(name, fair_key, nil)  -- it may have capacity now
        end
    end
end
if write then
    for _, pair in ipairs(write.slots) do
        adopt_slot(pair[1], cmsgpack.unpack(pair[2]))
    end
    if write.rules then
        call('HSET', at('policy:rules'), scope, write.rules)
    else
        call('HDEL', at('policy:rules'), scope)
    end
    call('HSET', at('policy:limits'), scope, write.limits)
    if write.declared then
        call('HSET', at('policy:declared'), scope, write.declared)
    end
    call('LPUSH', at(audit), now_text .. ' ' .. write.change)
    call('LTRIM', at(audit), 0, write.kept - 1)
end
return { 'done', reported }
