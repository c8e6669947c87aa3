-- Scan a fair queue: for each queue of the scope the ready tasks without a key, and the first fair keys by pass
-- with their ready tasks. Expired leases are reclaimed and due keys are woken on the way.
--
-- ARGV[2]  msgpack: scope, queues, room, fair_keys (the limit of fair keys per queue), few (tasks per fair key, or nil),
--          every (whether to read every priority), is_home (whether this is the home partition of the scope),
--          asked (with is_home: keys; then only their state is returned)
-- Returns  {"want", keys} or {"done", "1" if the scope has a policy, "1" if slots are to be released,
--          {per queue: {{task, …}, {{key, pass, {task, …}, "1" if there may be more}, …},
--          "1" if there may be more fair keys}, …}, the state of the scope (see `queue_state`), or ""}
--          A task is priority, ready, order (sortable) and name

-- include: prelude
-- include: prefixes
-- include: runs
-- include: tasks
-- include: policy

local args = cmsgpack.unpack(ARGV[2])
need_tasks()
if args.is_home then
    need_policy()
end
if #missing > 0 then
    return { 'want', missing }
end
if args.asked then
    return { 'done', '0', '0', {}, queue_state(args.scope, args.asked) }
end
for _, name in ipairs(call('ZRANGEBYSCORE', at('fair:asleep'), '-inf', now_text, 'LIMIT', 0, 1000)) do
    set_wake_time(name, find_fair_key(name), nil)
end
local every = args.every or (args.is_home and limits_of(args.scope).ages)

-- Whether the limits of a key are reached: then its fair key sleeps.
local limits, scope_head = args.is_home and limits_of(args.scope), framed(args.scope)
if limits and limits.key_concurrency then
    drop_ended_slots()
end

local function is_at_limit(queue, key)
    local head, rate = scope_head .. framed(key), limits and limits.key_rate
    local name = fair_key_name(queue, key)
    if limits and limits.key_concurrency and count_slots(head) >= limits.key_concurrency then
        block_fair_key(name, find_fair_key(name))
        return true
    elseif rate and count_starts('policy:key-starts', head, rate.per) >= rate.limit then
        set_wake_time(name, find_fair_key(name), int(tonumber(first_start('policy:key-starts', head, rate.per)) + rate.per))
        return true
    end
    return false
end

-- The first fair keys with a ready task; the others sleep.
local function fair_keys_of(queue, frame)
    local count = call('ZLEXCOUNT', at('fair:turn'), '[' .. frame, '(' .. frame .. '\255')
    local few = args.few or 1 + floor(args.room / math.max(1, math.min(count, args.room)))
    local found, after = {}, '[' .. frame
    while #found < args.fair_keys do
        local turn = call('ZRANGEBYLEX', at('fair:turn'), after, '(' .. frame .. '\255', 'LIMIT', 0, 1)[1]
        if not turn then
            return found, '0'
        end
        local key = sub(turn, #frame + 30)
        if not is_at_limit(queue, key) then
            local places, later = ready_in(at('task:keyed'), keyed_prefix(queue, key), few, every)
            if #places > 0 then
                local pass = int(tonumber(sub(turn, #frame + 2, #frame + 21)))
                found[#found + 1] = { key, pass, places, #places >= few and '1' or '0' }
            else
                local name = fair_key_name(queue, key)
                set_wake_time(name, find_fair_key(name), later)
            end
        end
        after = '(' .. turn
    end
    return found, '1'
end

local found, asked, is_asked = {}, { '' }, { [''] = true }
for n, queue in ipairs(args.queues) do
    local frame = framed(queue)
    reclaim_expired(frame)
    local bare = ready_in(at('task:free'), frame, args.room, every)
    local found_keys, more = fair_keys_of(queue, frame)
    for _, fair_key in ipairs(found_keys) do
        if not is_asked[fair_key[1]] then
            is_asked[fair_key[1]] = true
            asked[#asked + 1] = fair_key[1]
        end
    end
    found[n] = { bare, found_keys, more }
end
return { 'done', call('HEXISTS', at('policy:homes'), args.scope) == 1 and '1' or '0',
    call('EXISTS', at('slot:returns')) == 1 and '1' or '0', found,
    args.is_home and queue_state(args.scope, asked) or '' }
