-- Count the tasks of a scope's queues in this partition.
--
-- ARGV[2]  msgpack: scope, counted (the limit of keys, priorities and tasks in flight to read)
-- Returns  {"want", keys} or {"done", ready, delayed, in flight, dead, since when the oldest is ready or "",
--          {key, ready, in flight, …}, "1" if waiting tasks were not read, "1" if tasks in flight were not read,
--          so that there may be more of their keys}

-- include: prelude
-- include: prefixes
-- include: runs
-- include: tasks

local args = cmsgpack.unpack(ARGV[2])
need_tasks()
if #missing > 0 then
    return { 'want', missing }
end
local ready, delayed, in_flight, dead, oldest = 0, 0, 0, 0, nil
local keys, looks, waiting_left, held_left = {}, 0, '0', '0'

local function of_key(key)
    keys[key] = keys[key] or { 0, 0 }
    return keys[key]
end

local function count(set, head)
    return call('ZLEXCOUNT', set, '[' .. head, '(' .. head .. '\255')
end

-- How many tasks with a prefix are ready, of all priorities.
local function count_ready(set, head)
    local found, level = 0, '[' .. head
    while true do
        local member = call('ZRANGEBYLEX', set, level, '(' .. head .. '\255', 'LIMIT', 0, 1)[1]
        if not member then
            break
        end
        looks = looks + 1
        if looks > args.counted then
            waiting_left = '1'
            ready = ready + found
            return found
        end
        local top, since = sub(member, 1, #head + 21), sub(member, #head + 22, #head + 42)
        if since <= sortable(now_text) then
            found = found + call('ZLEXCOUNT', set, '[' .. top, '[' .. top .. sortable(now_text) .. '\255')
            oldest = (not oldest or since < oldest) and since or oldest
        end
        level = '(' .. top .. '\255'
    end
    ready, delayed = ready + found, delayed + count(set, head) - found
    return found
end

-- The queues of the scope in a set.
local function own_frames(set)
    local found = {}
    for _, pair in ipairs(prefixes_in(at(set))) do
        if scope_of(sub(pair[1], 9)) == args.scope then
            found[#found + 1] = pair[1]
        end
    end
    return found
end

for _, frame in ipairs(own_frames('task:held')) do
    reclaim_expired(frame)
    local held = count(at('task:held'), frame)
    in_flight = in_flight + held
    held_left = held > args.counted and '1' or held_left
    for _, member in ipairs(call('ZRANGEBYLEX', at('task:held'), '[' .. frame, '(' .. frame .. '\255',
        'LIMIT', 0, args.counted)) do
        local key = find_task(sub(member, #frame + 22)).key
        if key then
            of_key(key)[2] = of_key(key)[2] + 1
        end
    end
end
for _, frame in ipairs(own_frames('task:free')) do
    count_ready(at('task:free'), frame)
end
for _, frame in ipairs(own_frames('task:keyed')) do
    for _, pair in ipairs(prefixes_in(at('task:keyed'), frame, args.counted + 1)) do
        if waiting_left == '1' then
            break
        end
        local own = of_key(sub(pair[1], #frame + 9))
        own[1] = own[1] + count_ready(at('task:keyed'), pair[1])
    end
end
for _, frame in ipairs(own_frames('dead:order')) do
    dead = dead + count(at('dead:order'), frame)
end
local flat = {}
for key, counts in pairs(keys) do
    flat[#flat + 1] = key
    flat[#flat + 1] = int(counts[1])
    flat[#flat + 1] = int(counts[2])
end
return { 'done', int(ready), int(delayed), int(in_flight), int(dead),
    oldest and int(tonumber(sub(oldest, 2))) or '', flat, waiting_left, held_left }
