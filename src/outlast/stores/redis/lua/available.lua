-- Tasks that are due and that nobody holds, in the order in which they should be done.
--
-- KEYS     task:data, task:state, task:free, task:lined, task:held
-- ARGV[2]  msgpack: queue (or nil for all), limit, counts (whether only their number is asked for)
-- Returns  {"count", number} or {"done", {{place, state (msgpack), bytes}, …}}; places sort like tasks

-- include: head
-- include: frames

local wish = cmsgpack.unpack(ARGV[2])
local free, held, states = at('task:free'), at('task:held'), at('task:state')
local lined = at('task:lined')
local present = sortable(now_text)

-- The distinct queues of all sets.
local function queues()
    local found, is_known = {}, {}
    for _, set in ipairs({ free, lined, held }) do
        for _, pair in ipairs(frames_in(set)) do
            if not is_known[pair[1]] then
                is_known[pair[1]] = true
                found[#found + 1] = pair[1]
            end
        end
    end
    return found
end

local count, places = 0, {}

-- Of each priority those that are ready, of a queue or a line.
local function look_among_free(free, frame)
    local level = '[' .. frame
    local left = wish.limit
    while wish.counts or left > 0 do
        local member = call('ZRANGEBYLEX', free, level, '(' .. frame .. '\255', 'LIMIT', 0, 1)[1]
        if not member then
            break
        end
        local head = sub(member, 1, #frame + 21)
        local from, to = '[' .. head, '[' .. head .. present .. '\255'
        if wish.counts then
            count = count + call('ZLEXCOUNT', free, from, to)
        else
            for _, place in ipairs(call('ZRANGEBYLEX', free, from, to, 'LIMIT', 0, left)) do
                places[#places + 1] = { sub(place, #frame + 1), sub(place, #frame + 64) }
                left = left - 1
            end
        end
        level = '(' .. head .. '\255'
    end
end

local function look_among_lined(frame)
    for _, pair in ipairs(frames_in(lined, frame)) do
        look_among_free(lined, pair[1])
    end
end

-- Those whose lease ran out.
local function look_among_held(frame)
    local from, to = '[' .. frame, '[' .. frame .. present .. '\255'
    if wish.counts then
        count = count + call('ZLEXCOUNT', held, from, to)
        return
    end
    for _, member in ipairs(call('ZRANGEBYLEX', held, from, to)) do
        local name = sub(member, #frame + 22)
        local task = cmsgpack.unpack(call('HGET', states, name))
        local place = sortable(task.priority) .. sortable(task.ready) .. sortable(task.order) .. name
        places[#places + 1] = { place, name }
    end
end

for _, frame in ipairs(wish.queue and { framed(wish.queue) } or queues()) do
    look_among_free(free, frame)
    look_among_lined(frame)
    look_among_held(frame)
end
if wish.counts then
    return { 'count', int(count) }
end
table.sort(places, function(left, right) return left[1] < right[1] end)
local found = {}
for n = 1, math.min(#places, wish.limit) do
    local place, name = places[n][1], places[n][2]
    found[n] = { place, call('HGET', states, name), call('HGET', at('task:data'), name) }
end
return { 'done', found }
