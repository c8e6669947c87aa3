-- Whose turn it may be: of each queue the ready tasks without a key, and the first lines in the order of
-- their turns with what they have. What is due is done on the way: leases that ran out, lines that wake.
--
-- ARGV[2]  msgpack: scope, queues, room, lines (how many of each queue), few (tasks of a line, or nil),
--          every (whether to look at every priority), is_home (whether this partition has the scope's
--          rules), asked (with is_home: keys; then only how these stand is told)
-- Returns  {"want", keys} or {"done", "1" if the scope has rules, "1" if slots are to be given back,
--          {per queue: {{place, …}, {{key, pass, {place, …}, "1" if there may be more}, …},
--          "1" if there may be more lines}, …}, how the scope stands (see `standing`), or ""}
--          A place is priority, ready, order (sortable) and task

-- include: head
-- include: frames
-- include: runs
-- include: tasks
-- include: policy

local wish = cmsgpack.unpack(ARGV[2])
need_tasks()
if wish.is_home then
    need_policy()
end
if #missing > 0 then
    return { 'want', missing }
end
if wish.asked then
    return { 'done', '0', '0', {}, standing(wish.scope, wish.asked) }
end
for _, name in ipairs(call('ZRANGEBYSCORE', at('line:asleep'), '-inf', now_text, 'LIMIT', 0, 1000)) do
    let_sleep(name, find_line(name), nil)
end
local every = wish.every or (wish.is_home and limits_of(wish.scope).ages)

-- Whether a line may not hand out anything, by the rules of its key: then it is sent to sleep.
local limits, scope_head = wish.is_home and limits_of(wish.scope), framed(wish.scope)
if limits and limits.key_concurrency then
    drop_ended_slots()
end

local function is_stopped(queue, key)
    local head, rate = scope_head .. framed(key), limits and limits.key_rate
    local name = line_name(queue, key)
    if limits and limits.key_concurrency and count_slots(head) >= limits.key_concurrency then
        block_line(name, find_line(name))
        return true
    elseif rate and began_within('policy:key-starts', head, rate.per) >= rate.limit then
        let_sleep(name, find_line(name), int(tonumber(first_start('policy:key-starts', head, rate.per)) + rate.per))
        return true
    end
    return false
end

-- The first lines that have something; others are sent to sleep.
local function lines_of(queue, frame)
    local count = call('ZLEXCOUNT', at('line:turn'), '[' .. frame, '(' .. frame .. '\255')
    local few = wish.few or 1 + floor(wish.room / math.max(1, math.min(count, wish.room)))
    local found, after = {}, '[' .. frame
    while #found < wish.lines do
        local turn = call('ZRANGEBYLEX', at('line:turn'), after, '(' .. frame .. '\255', 'LIMIT', 0, 1)[1]
        if not turn then
            return found, '0'
        end
        local key = sub(turn, #frame + 30)
        if not is_stopped(queue, key) then
            local places, later = ready_in(at('task:lined'), lined_head(queue, key), few, every)
            if #places > 0 then
                local pass = int(tonumber(sub(turn, #frame + 2, #frame + 21)))
                found[#found + 1] = { key, pass, places, #places >= few and '1' or '0' }
            else
                local name = line_name(queue, key)
                let_sleep(name, find_line(name), later)
            end
        end
        after = '(' .. turn
    end
    return found, '1'
end

local found, asked, is_asked = {}, { '' }, { [''] = true }
for n, queue in ipairs(wish.queues) do
    local frame = framed(queue)
    take_back(frame)
    local bare = ready_in(at('task:free'), frame, wish.room, every)
    local lines, more = lines_of(queue, frame)
    for _, line in ipairs(lines) do
        if not is_asked[line[1]] then
            is_asked[line[1]] = true
            asked[#asked + 1] = line[1]
        end
    end
    found[n] = { bare, lines, more }
end
return { 'done', call('HEXISTS', at('policy:homes'), wish.scope) == 1 and '1' or '0',
    call('EXISTS', at('slot:returns')) == 1 and '1' or '0', found,
    wish.is_home and standing(wish.scope, asked) or '' }
