package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// question is a request, as the oracle and a client see it.
type question struct {
	target  string // echo or front
	account string // of the client; empty at front
	source  string // address of the client
	path    string
	token   string // red, forged or empty
	let     bool   // whether the provider of CUSTOM lets it in
	tcp     bool   // to a port that is not HTTP for the proxy
}

// rules are the policies of a target at a time, and their answers to a question.
type rules struct {
	name, spec string
	allows     func(question) bool
	http       bool // they use fields of HTTP; no TCP connection passes them
}

func (r rules) equal(candidate rules) bool { return r.name == candidate.name }

// The statuses of an answer. 0 is none: the connection was closed.
var (
	passes  = []int{http.StatusOK}
	denied  = []int{http.StatusForbidden}
	closed  = []int{0}
	refused = []int{http.StatusForbidden, http.StatusUnauthorized, http.StatusTeapot} // by whoever is first
)

// expected returns which statuses may answer a question.
func expected(q question, r rules, provider bool) []int {
	switch {
	case q.tcp && (r.allows == nil || !provider || r.http || !r.allows(q)): // CUSTOM, which is for a path, is for all of it
		return closed
	case q.tcp:
		return passes
	case r.allows == nil: // a policy was never valid
		return refused
	case q.path == "/asked" && !provider:
		return denied
	case q.path == "/asked" && !q.let:
		return []int{http.StatusTeapot}
	case q.token == "forged":
		return []int{http.StatusUnauthorized}
	case r.allows(q):
		return passes
	}
	return denied
}

// version is the state in force at a target from some time on. Envoy may have it once it is written, and has it once
// new connections have shown it.
type version struct {
	written, acked time.Time
	any            []rules // one of these; more than one if either is right
}

// outcome is the result of a client's request.
type outcome struct {
	question
	conn           *clientConn
	started, ended time.Time
	status         int // 0 if it failed
	err            error
	dialed         time.Time // when its connection was begun
	forbidden      bool      // no answer may come at all
}

// policyOracle knows the rules that were in force, and judges answers by them.
type policyOracle struct {
	mu       sync.Mutex
	versions map[string][]*version // by target
	provider []*version            // up and down by turns; it is up at first
	answers  []outcome
	n        atomic.Int64
}

func newPolicyOracle() *policyOracle {
	return &policyOracle{versions: map[string][]*version{}, provider: []*version{{}}}
}

func (o *policyOracle) add(a outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers = append(o.answers, a)
	o.n.Add(1)
}

// change says that other rules are about to be written.
func (o *policyOracle) change(target string, any ...rules) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.versions[target] = append(o.versions[target], &version{written: time.Now(), any: any})
}

// now returns the rules in force at a target.
func (o *policyOracle) now(target string) []rules {
	o.mu.Lock()
	defer o.mu.Unlock()
	versions := o.versions[target]
	return versions[len(versions)-1].any
}

// changeProvider says that the provider is about to die or to return.
func (o *policyOracle) changeProvider() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.provider = append(o.provider, &version{written: time.Now()})
}

func (o *policyOracle) providerUp() bool { return len(o.provider)%2 == 1 }

// ack notes that new connections have answered questions as the last written version does. A version is not seen yet if
// an earlier version that may still be in force gives the same answers.
func (o *policyOracle) ack(questions map[string][]question) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last := o.provider[len(o.provider)-1]; len(o.provider) > 1 && last.acked.IsZero() {
		last.acked = time.Now()
	}
	for target, versions := range o.versions {
		if last := versions[len(versions)-1]; len(versions) > 1 && last.acked.IsZero() && o.isSeen(versions, questions[target]) {
			last.acked = time.Now()
		}
	}
}

// isSeen says whether the answers to questions tell the last version from those before it that may be in force.
func (o *policyOracle) isSeen(versions []*version, questions []question) bool {
	answers := func(q question, v *version) (statuses []int) {
		for _, r := range v.any {
			statuses = append(statuses, expected(q, r, o.providerUp())...)
		}
		return statuses
	}
	last := versions[len(versions)-1]
	for i := len(versions) - 2; i >= 0; i-- {
		if !slices.ContainsFunc(questions, func(q question) bool {
			before := answers(q, versions[i])
			return !slices.ContainsFunc(answers(q, last), func(status int) bool { return slices.Contains(before, status) })
		}) {
			return false
		}
		if !versions[i].acked.IsZero() {
			break
		}
	}
	return true
}

// endOf returns when another version than the one with an index was in force for sure, and had none of some rules.
func endOf(versions []*version, i int, excluded ...rules) (time.Time, bool) {
	for _, next := range versions[i+1:] {
		same := slices.ContainsFunc(next.any, func(r rules) bool { return slices.ContainsFunc(excluded, r.equal) })
		if !same && !next.acked.IsZero() {
			return next.acked, true
		}
	}
	return time.Time{}, false
}

// between returns the versions that may have been in force at some time between two.
func between(versions []*version, from, to time.Time) (indexes []int) {
	for i, v := range versions {
		if end, over := endOf(versions, i); !v.written.After(to) && (!over || !end.Before(from)) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// verdict counts answers.
type verdict struct {
	total, passed, denied, reused int
	passedWrongly, failed         []string
}

// judge returns the wrong answers. A connection has the policies that were in force when it was opened: one version
// explains all of its answers. An open connection of a target that drains at once has one answer by old policies after
// the change; another one has them for the time of draining.
func (o *policyOracle) judge(drain map[string]time.Duration) verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := verdict{total: len(o.answers)}
	byConn := map[*clientConn][]outcome{}
	for _, a := range o.answers {
		switch {
		case a.status == http.StatusOK:
			v.passed++
		case a.status != 0 || a.tcp:
			v.denied++
		}
		switch {
		case a.tcp && a.conn == nil: // it was closed before it was of use
			a.conn, a.dialed = &clientConn{}, a.started
			byConn[a.conn] = append(byConn[a.conn], a)
		case a.forbidden:
			if a.status != 0 && !o.mayRefuse(a) {
				v.passedWrongly = append(v.passedWrongly, o.tell(a, "it may not be answered"))
			}
		case a.conn == nil:
			v.failed = append(v.failed, o.tell(a, a.err.Error()))
		default:
			byConn[a.conn] = append(byConn[a.conn], a)
		}
	}
	for _, answers := range byConn {
		v.reused += len(answers) - 1
		if why, index := o.unexplained(answers, drain[answers[0].target]); why != "" {
			a := answers[index]
			description := o.tell(a, why) + "\n  " + runs(answers, a.started)
			if a.status == http.StatusOK {
				v.passedWrongly = append(v.passedWrongly, description)
			} else {
				v.failed = append(v.failed, description)
			}
		}
	}
	return v
}

// mayRefuse reports whether an answer to a forbidden client is a refusal of every client.
func (o *policyOracle) mayRefuse(a outcome) bool {
	versions := o.versions[a.target]
	return a.conn != nil && slices.Contains(refused, a.status) && slices.ContainsFunc(between(versions, a.dialed, a.ended), func(i int) bool {
		return slices.ContainsFunc(versions[i].any, func(r rules) bool { return r.allows == nil })
	})
}

// unexplained returns why no rules explain the answers of a connection, and the answer with which the last ones fail to.
func (o *policyOracle) unexplained(answers []outcome, drain time.Duration) (why string, index int) {
	versions := o.versions[answers[0].target]
	// The proxy accepts the connection before its first answer.
	for _, i := range between(versions, answers[0].dialed, answers[0].ended) {
		for _, r := range versions[i].any {
			end, over := endOf(versions, i, r)
			wrong := o.firstWrong(answers, r, drain, end, over)
			if wrong < 0 {
				return "", 0
			}
			why += fmt.Sprintf(" %s fails at answer %d of %d;", r.name, wrong+1, len(answers))
			index = max(index, wrong)
		}
	}
	return why, index
}

// firstWrong returns the first answer that rules do not explain which were over at a time, or -1.
func (o *policyOracle) firstWrong(answers []outcome, r rules, drain time.Duration, end time.Time, over bool) int {
	late := 0
	for n, a := range answers {
		if !slices.Contains(o.statuses(a, r), a.status) {
			return n
		}
		if !over || !a.ended.After(end) {
			continue
		}
		if late++; drain == 0 && late > 1 || drain > 0 && a.started.After(end.Add(drain)) {
			return n
		}
	}
	return -1
}

// statuses returns the possible statuses of an answer, for each state of the provider in its time.
func (o *policyOracle) statuses(a outcome, r rules) (codes []int) {
	for _, p := range between(o.provider, a.started, a.ended) {
		codes = append(codes, expected(a.question, r, p%2 == 0)...)
	}
	return codes
}

func nameOf(v *version) string {
	var names []string
	for _, r := range v.any {
		names = append(names, r.name)
	}
	return strings.Join(names, " or ")
}

// runs lists the answers of a connection, with how many in a row had the same status, and when the first and the last of them came.
func runs(answers []outcome, start time.Time) string {
	var segments []string
	for i := 0; i < len(answers); {
		n := i
		for n < len(answers) && answers[n].status == answers[i].status {
			n++
		}
		segments = append(segments, fmt.Sprintf("%d × %d %v..%v", n-i, answers[i].status, answers[i].started.Sub(start),
			answers[n-1].ended.Sub(start)))
		i = n
	}
	return strings.Join(segments[:min(len(segments), 20)], ", ")
}

// tell describes an answer and the versions around its time.
func (o *policyOracle) tell(a outcome, why string) string {
	var around []string
	versions := o.versions[a.target]
	for _, i := range between(versions, a.dialed.Add(-time.Second), a.ended.Add(time.Second)) {
		v := versions[i]
		around = append(around, fmt.Sprintf("%s %v..%v", nameOf(v), v.written.Sub(a.started), v.acked.Sub(a.started)))
	}
	return fmt.Sprintf("%+v: %d %v, %v after its connection, in %v:%s\n  %s", a.question, a.status, a.err, a.started.Sub(a.dialed),
		a.ended.Sub(a.started), why, strings.Join(around, ", "))
}

// The oracle finds each kind of wrong answer.
func TestPolicyOracle_FindsWrongAnswers(t *testing.T) {
	open := rules{name: "open", allows: func(question) bool { return true }}
	shut := rules{name: "shut", allows: func(question) bool { return false }}
	base := time.Now()
	moment := func(s int) time.Time { return base.Add(time.Duration(s) * time.Second) }
	ask := func(conn *clientConn, dialed, started, status int) outcome {
		q := question{target: "echo"}
		return outcome{question: q, conn: conn, dialed: moment(dialed), started: moment(started), ended: moment(started), status: status}
	}
	conn := &clientConn{}
	for _, tt := range []struct {
		name           string
		answers        []outcome
		drain          time.Duration
		passed, failed int
	}{
		{"as it was", []outcome{ask(conn, 1, 1, 200), ask(conn, 1, 2, 200)}, 0, 0, 0},
		{"before and after", []outcome{ask(conn, 12, 12, 403)}, 0, 0, 0},
		{"either, while it changes", []outcome{ask(conn, 11, 11, 200)}, 0, 0, 0},
		{"new connections have the new policy", []outcome{ask(conn, 13, 14, 200)}, 0, 1, 0},
		{"a denial of an allowed request fails", []outcome{ask(conn, 1, 2, 403)}, 0, 0, 1},
		{"one answer more", []outcome{ask(conn, 1, 1, 200), ask(conn, 1, 13, 200)}, 0, 0, 0},
		{"and no second one", []outcome{ask(conn, 1, 1, 200), ask(conn, 1, 13, 200), ask(conn, 1, 14, 200)}, 0, 1, 0},
		{"or until it is drained", []outcome{ask(conn, 1, 13, 200), ask(conn, 1, 15, 200)}, 5 * time.Second, 0, 0},
		{"and not longer", []outcome{ask(conn, 1, 13, 200), ask(conn, 1, 18, 200)}, 5 * time.Second, 1, 0},
		{"a connection has one policy", []outcome{ask(conn, 11, 11, 200), ask(conn, 11, 11, 403)}, 0, 0, 1},
	} {
		o := newPolicyOracle()
		o.versions["echo"] = []*version{{any: []rules{open}}, {written: moment(10), acked: moment(12), any: []rules{shut}}}
		o.answers = tt.answers
		v := o.judge(map[string]time.Duration{"echo": tt.drain})
		if len(v.passedWrongly) != tt.passed || len(v.failed) != tt.failed {
			t.Errorf("%s: %d passed wrongly, %d failed: %v %v", tt.name, len(v.passedWrongly), len(v.failed), v.passedWrongly, v.failed)
		}
	}
}

// A version counts as seen only if no answer may be one of the version before.
func TestPolicyOracle_Acknowledges(t *testing.T) {
	menu := menu()
	for _, tt := range []struct {
		before, now int
		want        bool
	}{{0, 3, true}, {9, 11, false}, {0, 1, false}, {1, 2, true}} {
		o := newPolicyOracle()
		o.versions["echo"] = []*version{{any: menu[tt.before : tt.before+1]}}
		o.change("echo", menu[tt.now])
		var questions []question
		for _, account := range []string{"caller", "other"} {
			questions = append(questions, asker{}.probes(question{target: "echo", account: account})...)
		}
		o.ack(map[string][]question{"echo": questions})
		if got := !o.versions["echo"][1].acked.IsZero(); got != tt.want {
			t.Errorf("%s after %s: %v", menu[tt.now].name, menu[tt.before].name, got)
		}
	}
}
