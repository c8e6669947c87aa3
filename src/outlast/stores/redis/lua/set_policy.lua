-- New rules for a queue. Every partition is told first that there are rules, and where: from then on none
-- hands out a task of it without a slot, and those that are under way already are given one.
--
-- ARGV[2]  msgpack: scope, and
--          mark   home, nonce: tell this partition; its tasks under way get tickets
--          write  rules (bytes or nil), limits (msgpack), declared (bytes or nil), change (bytes), kept (how
--                 many changes stay on record), has_seen and seen (bytes or nil: the rules to replace),
--                 slots (a list of {task, slot} that the partitions have told): write them here
-- Returns  {"want", keys}, {"same"} if the code has declared that before, {"changed"} if the rules are not
--          those that were seen, or {"done", {{task, slot}, …}}, a
--          slot being msgpack
--
-- policy:audit:SCOPE  LIST  "TIME " and the bytes of a change, the last one first

-- include: head
-- include: frames
-- include: runs
-- include: tasks
-- include: policy

local wish = cmsgpack.unpack(ARGV[2])
local scope, write = wish.scope, wish.write
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

local function adopt(name, slot)
    local before = find_slot(name)
    if not before or before.ticket == slot.ticket then
        slot.at = before and before.at or now_text
        save_slot(name, slot)
    end
end

local told = {}

-- A task under way: under the ticket that it has, or a new one.
local function tell(name, task, mark)
    if not task.ticket then
        task.ticket, task.home = mark.nonce .. ':' .. int(#told), mark.home
        save_task(name, task)
    end
    local is_abroad = not is_here(mark.home)
    local ends = task['until']
    if ends and is_abroad then
        ends = int(tonumber(ends) + 2 * SKEW)
    end
    local slot = slot_of(task, ends)
    if is_abroad then
        told[#told + 1] = { name, cmsgpack.pack(slot) }
    else
        adopt(name, slot)
    end
end

if wish.mark then
    call('HSET', at('policy:homes'), scope, wish.mark.home)
    for _, pair in ipairs(frames_in(at('task:held'))) do
        local frame = pair[1]
        if scope_of(sub(frame, 9)) == scope then
            take_back(frame)
            for _, member in ipairs(call('ZRANGEBYLEX', at('task:held'), '[' .. frame,
                '(' .. frame .. '\255')) do
                local name = sub(member, #frame + 22)
                tell(name, find_task(name), wish.mark)
            end
        end
    end
    for _, name in ipairs(call('ZRANGE', at('line:asleep'), 0, -1)) do
        local line = find_line(name)
        if scope_of(line.queue) == scope then
            let_sleep(name, line, nil)  -- what was at a limit may not be any more
        end
    end
end
if write then
    for _, pair in ipairs(write.slots) do
        adopt(pair[1], cmsgpack.unpack(pair[2]))
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
return { 'done', told }
