-- Find when a task of these queues may become ready in this partition by time alone.
--
-- ARGV[2]  msgpack list of queues
-- Returns  {"want", keys} or {"done", {time, …}}

-- include: prelude
-- include: runs
-- include: tasks

need_tasks()
if #missing > 0 then
    return { 'want', missing }
end
local times, is_asked = {}, {}

local function first_after(set, head)
    return call('ZRANGEBYLEX', set, '(' .. head .. sortable(now_text) .. '\255', '(' .. head .. '\255',
        'LIMIT', 0, 1)[1]
end

for _, queue in ipairs(cmsgpack.unpack(ARGV[2])) do
    is_asked[queue] = true
    local frame = framed(queue)
    local level = '[' .. frame
    while true do
        local member = call('ZRANGEBYLEX', at('task:free'), level, '(' .. frame .. '\255', 'LIMIT', 0, 1)[1]
        if not member then
            break
        end
        local top = sub(member, 1, #frame + 21)
        local later = first_after(at('task:free'), top)
        if later then
            times[#times + 1] = int(tonumber(sub(later, #top + 2, #top + 21)))
        end
        level = '(' .. top .. '\255'
    end
    local held = first_after(at('task:held'), frame)
    if held and sub(held, #frame + 2, #frame + 21) ~= NEVER then
        times[#times + 1] = int(tonumber(sub(held, #frame + 2, #frame + 21)))
    end
end
for _, name in ipairs(call('ZRANGEBYSCORE', at('fair:asleep'), '(' .. now_text, '+inf', 'LIMIT', 0, 1000)) do
    local fair_key = find_fair_key(name)
    if is_asked[fair_key.queue] and not fair_key.blocked then
        times[#times + 1] = fair_key.wake
        break
    end
end
return { 'done', times }
