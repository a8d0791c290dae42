# SPDX-License-Identifier: Apache-2.0
"""Months of jobs over faults, from the definitions of docs/buy.md: JSON on standard input and output, seconds in floats.

Nothing is clever here: at every event each job's time passes and every sum is made anew.
"""
import json
import sys


class Job:
    def __init__(self, month, gpus, work):
        self.month, self.gpus, self.work = month, gpus, work
        part = month["gpus_per_node"] if month["policy"] == "reduced-tp" else month["tp"]
        self.parts = max(1, gpus // part)
        self.progress = 0.0  # seconds of the whole job that count
        self.debts = [["restarting", month["load"]]]
        self.left_out = 0
        self.redo = 0.0  # seconds that this outage makes it do again
        self.deaths = 0
        self.hit_at = None
        self.slow = {}  # by number of a slow part, what it adds to a step

    def held(self):
        return self.gpus - self.gpus // self.parts * self.left_out

    def slower(self):
        """All wait for the slowest in each of two exchanges."""
        return sum(max([more for of, more in self.slow.values() if of == one], default=0) for one in ("inside", "between"))

    def shares(self):
        """Of a second of steps: useful, writing; the rest is what slow parts cost."""
        m = self.month
        step, writes = m["step"], m["write"] / m["every"]
        if m["answer"]["kind"] == "in_memory":
            writes += m["answer"]["write"] / m["answer"]["every"]
        whole = step + step * self.slower() + writes
        return step / whole, writes / whole

    def time_left(self):
        owed = sum(time for _, time in self.debts)
        left = max(0.0, self.work - self.progress)
        return owed + left * self.gpus / self.held() / self.shares()[0]

    def passes(self, time, spent):
        while self.debts and time > 0:
            paid = min(time, self.debts[0][1])
            spent[self.debts[0][0]] += paid * self.held()
            self.debts[0][1] -= paid
            time -= paid
            if self.debts[0][1] <= 1e-9:
                self.debts.pop(0)
        if time > 0:
            useful, writing = self.shares()
            spent["useful"] += time * useful * self.held()
            spent["checkpoint"] += time * writing * self.held()
            spent["slower"] += time * (1 - useful - writing) * self.held()
            self.progress += time * useful * self.held() / self.gpus

    def back_to(self, steps):
        """Begins again at the last of places so many steps apart."""
        since = self.progress % (steps * self.month["step"])
        if since > self.redo:
            longer = 1 + self.slower()
            self.debts.append(["redone", (since - self.redo) * longer])
            self.redo = since

    def is_hit(self, dead):
        m, answer = self.month, self.month["answer"]
        if not self.debts:
            self.redo, self.deaths = 0.0, 0
        self.deaths += dead
        self.debts.append(["restarting", m["outage"]])
        self.back_to(1)  # the step under way
        if answer["kind"] == "in_memory" and self.deaths < answer["copies"]:
            # At the newer of copy and checkpoint.
            step = m["step"]
            newer = self.progress % (answer["every"] * step) <= self.progress % (m["every"] * step)
            load, steps = (answer if newer else m)["load"], (answer if newer else m)["every"]
        elif answer["kind"] == "migrate" and self.deaths < self.parts:
            load, steps = answer["takes"], 1
        elif answer["kind"] == "elastic":
            load, steps = answer["reform"], 1
        else:
            load, steps = m["load"], m["every"]
        self.debts.append(["restarting", load])
        self.back_to(steps)

    def begins_again(self):
        self.debts, self.redo, self.left_out = [["restarting", self.month["load"]]], 0.0, 0
        self.deaths = float("inf")
        self.slow = {}
        self.back_to(self.month["every"])


def usable(month, dead):
    """GPUs of full groups."""
    tp, per_node, total = month["tp"], month["gpus_per_node"], 0
    gpus = month["nodes"] * per_node
    for first in range(0, gpus, month["island"]):
        of = range(first, min(gpus, first + month["island"]))
        healthy, installed = sum(gpu // per_node not in dead for gpu in of), len(of)
        if month["policy"] == "backup":
            healthy = min(healthy, max(0, installed - month["spares"] * per_node))
        groups = healthy // tp
        total += groups * tp
        rest = healthy - groups * tp
        if month["policy"] == "reduced-tp" and groups < installed // tp and 2 * rest >= tp:
            total += rest
    return total


def has_spare(month, dead, node):
    """Whether the domains of a node that has just died kept back as many GPUs as are dead there."""
    per_node, island = month["gpus_per_node"], month["island"]
    for gpu in range(node * per_node, (node + 1) * per_node):
        first = gpu // island * island
        of = range(first, min(month["nodes"] * per_node, first + island))
        if sum(gpu // per_node in dead for gpu in of) > month["spares"] * per_node:
            return False
    return True


def starts(now, jobs, running, waiting, free):
    """The first waiting job that starts, or None."""
    first = waiting[0] if waiting else None
    if first is None or jobs[first].gpus <= free:
        return first
    then, at, extra = free, float("inf"), free
    for end, gpus in sorted((now + jobs[one].time_left(), jobs[one].held()) for one in running):
        then += gpus
        if then >= jobs[first].gpus:
            at, extra = end, then - jobs[first].gpus
            break
    # Those that started before at this instant and end after the reservation are among the running.
    for one in waiting[1:]:
        if jobs[one].gpus <= free and (now + jobs[one].time_left() <= at or jobs[one].gpus <= extra):
            return one
    return None


def replay(month):
    names = "useful redone restarting checkpoint slower waiting idle fragmented faulty".split()
    spent = dict.fromkeys(names, 0.0)
    counts = {"finished": 0, "interruptions": 0, "stops": 0}
    jobs, running, waiting, dead, now = [], [], [], set(), 0.0
    slow = [(begin, number, True) for number, (begin, *_) in enumerate(month["slow"])]
    slow += [(end, number, False) for number, (_, end, *_) in enumerate(month["slow"])]
    slow.sort()
    changes, arrivals = list(month["changes"]), list(month["arrivals"])
    gpus, per_node = month["nodes"] * month["gpus_per_node"], month["gpus_per_node"]
    elastic = month["answer"]["kind"] == "elastic"

    def held():
        return sum(jobs[one].held() for one in running)

    def holder(share):
        place, end = int(share * (gpus - len(dead) * per_node)), 0
        for one in running:
            end += jobs[one].held()
            if place < end:
                return one
        return None

    def stop(one):
        running.remove(one)
        jobs[one].begins_again()
        waiting.append(one)
        waiting.sort()
        counts["stops"] += 1

    def leaves_out(job):
        least = -(-job.parts * month["least"] // 1)
        if job.parts - job.left_out - 1 < least:
            return False
        job.left_out += 1
        return True

    def fault(node, hit):
        victim = holder(hit)
        dead.add(node)
        if victim is not None:
            job, goes_on = jobs[victim], True
            is_known = job.hit_at == now
            job.hit_at = now
            counts["interruptions"] += not is_known
            if elastic:
                goes_on = leaves_out(job)
                while goes_on and held() > usable(month, dead):
                    goes_on = leaves_out(job)
            if not goes_on:
                stop(victim)
            elif not is_known:
                replaced = month["policy"] == "backup" and has_spare(month, dead, node)
                moves = month["answer"]["kind"] == "migrate"
                job.is_hit(job.parts if moves and not replaced else 1)
        while held() > usable(month, dead):
            stop(running[-1])

    while True:
        ends = [now + jobs[one].time_left() for one in running]
        nexts = [min(ends, default=float("inf"))]
        nexts += [changes[0][0] if changes else float("inf")]
        nexts += [slow[0][0] if slow else float("inf")]
        nexts += [arrivals[0][0] if arrivals else float("inf")]
        at = min(min(nexts), month["window"])
        time, works = at - now, usable(month, dead)
        free = works - held()
        wanted = min(free, sum(jobs[one].gpus for one in waiting))
        spent["faulty"] += time * len(dead) * per_node
        spent["fragmented"] += time * (gpus - len(dead) * per_node - works)
        spent["waiting"] += time * wanted
        spent["idle"] += time * (free - wanted)
        for one in running:
            jobs[one].passes(time, spent)
        now = at
        if at >= month["window"]:
            return {**spent, **counts}
        if nexts[0] <= at:
            one = running[ends.index(nexts[0])]
            running.remove(one)
            counts["finished"] += 1
        elif nexts[1] <= at:
            _, node, fails, hit = changes.pop(0)
            if fails:
                fault(node, hit)
            else:
                dead.discard(node)
        elif nexts[2] <= at:
            _, number, begins = slow.pop(0)
            _, _, place, slower, exchange = month["slow"][number]
            one = holder(place) if begins else None
            if one is not None:
                jobs[one].slow[number] = (exchange, slower)
            for job in jobs if not begins else []:
                job.slow.pop(number, None)
        else:
            _, wants, work = arrivals.pop(0)
            waiting.append(len(jobs))
            jobs.append(Job(month, wants, work))
        for one in running if elastic else []:
            job = jobs[one]
            back = min(job.left_out, (usable(month, dead) - held()) // (job.gpus // job.parts))
            if back > 0:
                if not job.debts:
                    job.redo, job.deaths = 0.0, 0
                job.left_out -= back
                job.debts.append(["restarting", month["answer"]["rejoin"]])
        while True:
            one = starts(now, jobs, running, waiting, usable(month, dead) - held())
            if one is None:
                break
            waiting.remove(one)
            running.append(one)
            running.sort()


json.dump([replay(month) for month in json.load(sys.stdin)], sys.stdout)
