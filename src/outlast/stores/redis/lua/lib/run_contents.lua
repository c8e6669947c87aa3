-- The contents of a commit besides events and record.
--
-- wf:ID:entries   LIST    "TIME " and the bytes of the audit entry
-- wf:ID:snapshot  STRING  "TIME " and the bytes
-- wf:ROOT:facts   HASH    hash → bytes, of a whole tree

local function need_contents(commit)
    local id = commit.run
    if commit.finishes or commit.drops or commit.tasks or commit.dead then
        need(of_run(id, 'tasks'))
        need_tasks()
    end
    if commit.timers or commit.fired then
        need('timers:due')
        need(of_run(id, 'timers'))
        for _, timer in ipairs(commit.timers or {}) do
            need(timer_name(id, timer.id))
        end
        for _, timer in ipairs(commit.fired or {}) do
            need(timer_name(id, timer))
        end
    end
    if commit.facts then
        need(of_run(commit.root, 'facts'))
        need_facts_kept(commit.root)
    end
    if commit.entries then
        need(of_run(id, 'entries'))
    end
    if commit.snapshot then
        need(of_run(id, 'snapshot'))
        need('idx:snapshots')
    end
    for _, activity in ipairs(commit.activities or {}) do
        need(of_run(id, 'activities'))
        local key = need(activity_name(activity.id))
        local owner = key and call('HGET', key, 'run')
        if owner then
            need(of_run(owner, 'activities'))
        end
    end
end

local function write_timers(run, commit)
    local all = at(of_run(run.id, 'timers'))
    for _, timer in ipairs(commit.timers or {}) do
        if call('SADD', all, timer.id) == 1 then
            call('HSET', at(timer_name(run.id, timer.id)), 'run', run.id, 'id', timer.id,
                'fire_at', timer.at, 'fired', '0')
            call('ZADD', at('timers:due'), timer.due, due_name(run.id, timer.id))
        end
    end
    local fired = {}
    for _, id in ipairs(commit.fired or {}) do
        local key = at(timer_name(run.id, id))
        if call('HGET', key, 'fired') == '0' then
            call('HSET', key, 'fired', '1')
            call('ZREM', at('timers:due'), due_name(run.id, id))
            fired[#fired + 1] = id
        end
    end
    return fired
end

local function write_tasks(run, commit)
    for _, claim in ipairs(commit.finishes or {}) do
        local task, _, name = held_task(claim)
        if task then
            remove_task(name, task)
        end
    end
    if commit.drops then
        local ids = {}
        for _, id in ipairs(commit.drops) do
            ids[id] = true
        end
        drop_tasks(run.id, ids)
    end
    for _, task in ipairs(commit.tasks or {}) do
        local name = task_name(task.queue, run.id, task.id)
        add_task(name, {
            queue = task.queue, run = run.id, id = task.id, uid = run.uid,
            priority = task.priority, ready = task.ready and from_now(task.ready) or now_text,
            attempt = task.attempt, enqueued = now_text, key = task.key,
        }, task.bytes)
    end
    for _, task in ipairs(commit.dead or {}) do
        local name = task_name(task.queue, run.id, task.id)
        if not find_dead(name) then
            lay_dead(name, {
                queue = task.queue, run = run.id, id = task.id, uid = run.uid,
                priority = task.priority, ready = now_text, attempt = task.attempt,
                order = int(call('INCR', at('task:order'))), token = '0', key = task.key,
                enqueued = task.enqueued or now_text, reason = task.reason, died = task.died,
            }, task.bytes)
        end
    end
end

-- The ids of the timers that the commit fired.
local function write_parts(run, commit)
    write_tasks(run, commit)
    local fired = (commit.timers or commit.fired) and write_timers(run, commit) or {}
    for i = 1, #(commit.facts or {}), 2 do
        call('HSET', at(of_run(commit.root, 'facts')), commit.facts[i], commit.facts[i + 1])
    end
    for i = 1, #(commit.entries or {}), 2 do
        local time = commit.entries[i] == '' and now_text or commit.entries[i]
        call('RPUSH', at(of_run(run.id, 'entries')), time .. ' ' .. commit.entries[i + 1])
    end
    for _, activity in ipairs(commit.activities or {}) do
        local key = at(activity_name(activity.id))
        local owner = call('HGET', key, 'run')
        if owner and owner ~= run.id then
            call('SREM', at(of_run(owner, 'activities')), activity.id)
        end
        call('HSET', key, 'run', run.id, 'at', int(server_time()), 'bytes', activity.bytes)
        call('SADD', at(of_run(run.id, 'activities')), activity.id)
    end
    if commit.snapshot then
        call('SET', at(of_run(run.id, 'snapshot')), now_text .. ' ' .. commit.snapshot)
        call('ZADD', at('idx:snapshots'), '0', run.id)
    end
    return fired
end
