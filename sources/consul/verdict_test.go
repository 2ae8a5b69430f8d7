package consul

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/assert"

	"tributary/sources/consul/consultest"
	"tributary/sources/consul/judge"
)

func webInstances(ids ...string) instances { return newInstances(consultest.Instances(ids...)) }

// answer is about instances, with flags of judge.Answer.
func answer(index uint64, i instances, flags ...string) serviceAnswer {
	has := func(flag string) bool { return len(flags) > 0 && strings.Contains(flags[0], flag) }
	return serviceAnswer{instances: i, Answer: judge.Answer{
		Index: index, Confirmed: has("confirmed"), Filtered: has("filtered"),
	}}
}

func TestVerdictOn(t *testing.T) {
	none, empty, single, pair := instances{}, webInstances(), webInstances("1"), webInstances("1", "2")
	moved := webInstances("another")
	moved.list[0].Service.Address = "1.test"
	for name, c := range map[string]struct {
		before instances
		new    bool
		r      serviceAnswer
		want   judge.Verdict
	}{
		"the same":                          {before: single, r: answer(9, single), want: judge.Unchanged},
		"one more":                          {before: single, r: answer(9, pair), want: judge.Changed},
		"another health":                    {before: single, r: answer(9, newInstances(sick("1"))), want: judge.Changed},
		"another ID at the same address":    {before: single, r: answer(9, moved), want: judge.Changed},
		"at an older index":                 {before: single, r: answer(1, pair), want: judge.Changed},
		"a watch lists one less":            {before: pair, r: answer(9, single), want: judge.Doubtful},
		"there is one less":                 {before: pair, r: answer(9, single, "confirmed"), want: judge.Changed},
		"there is none":                     {before: single, r: answer(9, none, "confirmed"), want: judge.Emptied},
		"there is still none":               {before: empty, r: answer(9, none, "confirmed"), want: judge.Emptied},
		"none, but the token hides":         {before: single, r: answer(9, none, "confirmed filtered"), want: judge.Denied},
		"the first read":                    {new: true, r: answer(9, single), want: judge.Changed},
		"the first read finds none, surely": {new: true, r: answer(9, none, "confirmed"), want: judge.Emptied},
	} {
		service := &service{instances: c.before, readState: readApplied}
		if c.new {
			service.readState = readPending
		}
		assert.Equal(t, c.want, service.verdictOn(c.r), name)
	}
}

func TestVerdictOnNames(t *testing.T) {
	list := func(index uint64, names ...string) listing {
		l := listing{names: map[string][]string{}, Answer: judge.Answer{Index: index}}
		for _, n := range names {
			l.names[n] = nil
		}
		return l
	}
	certainly := func(l listing) listing { l.Confirmed = true; return l }
	filtered := func(l listing) listing { l.Filtered = true; return l }
	for name, c := range map[string]struct {
		before listing
		new    bool
		outage bool
		l      listing
		want   judge.Verdict
		wiped  bool
	}{
		"the same":           {before: list(5, "a"), l: list(6, "a"), want: judge.Unchanged},
		"one more":           {before: list(5, "a"), l: list(6, "a", "b"), want: judge.Changed},
		"one less":           {before: list(5, "a", "b"), l: list(6, "a"), want: judge.Doubtful},
		"certainly one less": {before: list(5, "a", "b"), l: certainly(list(6, "a")), want: judge.Changed},
		"all at once":        {before: list(5, "a", "b"), l: certainly(list(6)), want: judge.Changed, wiped: true},
		"most, after an outage": {
			before: list(5, "a", "b", "c"), outage: true, l: certainly(list(6, "a")), want: judge.Changed,
			wiped: true,
		},
		"an older index, certainly": {before: list(5, "a"), l: certainly(list(4, "a")), want: judge.Changed, wiped: true},
		"most, after an outage, and the token hides": {
			before: list(5, "a", "b", "c"), outage: true, l: certainly(filtered(list(6, "a"))), want: judge.Partial,
		},
		"the first read": {new: true, l: list(5, "a"), want: judge.Changed},
	} {
		scope := &catalogScope{listing: c.before, namesRead: !c.new}
		if c.outage {
			scope.trouble = new(trouble)
		}
		verdict, wiped := verdictOnNames(scope.compare(c.l), c.l.Answer)
		assert.Equal(t, c.want, verdict, name)
		assert.Equal(t, c.wiped, wiped, name)
	}
}

func TestDigest_IgnoresUnimportantFields(t *testing.T) {
	first, second := consultest.Instance("web", "1", "10.0.0.1", 80), consultest.Instance("web", "1", "10.0.0.1", 80)
	second.Node.ModifyIndex, second.Service.ModifyIndex, second.Service.CreateIndex = 5, 6, 7
	second.Checks[0].Output, second.Checks[0].ModifyIndex = "HTTP GET: 200 OK in 12 ms", 8
	assert.Equal(t, newInstances([]*api.ServiceEntry{first}).sum, newInstances([]*api.ServiceEntry{second}).sum)
	second.Service.Meta = map[string]string{"version": "2"}
	assert.NotEqual(t, newInstances([]*api.ServiceEntry{first}).sum, newInstances([]*api.ServiceEntry{second}).sum)
	second = consultest.Instance("web", "1", "10.0.0.1", 80)
	first.Checks[0].Type, second.Checks[0].Type, first.Checks[0].Output, second.Checks[0].Output = "ttl", "ttl", "", "TTL expired"
	assert.NotEqual(t, newInstances([]*api.ServiceEntry{first}).sum, newInstances([]*api.ServiceEntry{second}).sum,
		"an unheard TTL check differs from an expired one")
	a, b := webInstances("1", "2"), webInstances("1", "2")
	slices.Reverse(b.list)
	b = newInstances(b.list)
	assert.Equal(t, a.sum, b.sum, "the order of Consul's answer does not count")
}

func TestPacer(t *testing.T) {
	p := pacer{last: paceLast}
	now := time.Now()
	var waits []time.Duration
	for range 9 { // a service that changes whenever it is read
		wait := p.next(now)
		now = now.Add(wait)
		waits = append(waits, wait.Round(time.Second))
	}
	s := time.Second
	for q, i := (pacer{last: paceLast}), 0; i < 100; i++ {
		assert.Zero(t, q.next(now.Add(time.Duration(i)*paceLeak)), "one in 15 s is never held up")
	}
	assert.Equal(t, []time.Duration{0, 0, s, 2 * s, 4 * s, 8 * s, 15 * s, 15 * s, 15 * s}, waits)
	assert.Zero(t, p.next(now.Add(2*time.Minute)), "after a quiet minute")
	assert.Zero(t, p.next(now.Add(2*time.Minute)))
	assert.Equal(t, s, p.next(now.Add(2*time.Minute)), "it starts afresh")
}

func TestSelection(t *testing.T) {
	for _, c := range []struct {
		s    selection
		name string
		tags []string
		want bool
	}{
		{selection{}, "web", nil, true},
		{selection{}, "consul", nil, false},
		{selection{}, "", nil, false},
		{selection{services: patterns([]string{"web", "api-*"})}, "api-v1", nil, true},
		{selection{services: patterns([]string{"web", "api-*"})}, "db", nil, false},
		{selection{skip: patterns([]string{"*-internal"})}, "db-internal", nil, false},
		{selection{services: patterns([]string{"a*c*e"})}, "abcde", nil, true},
		{selection{services: patterns([]string{"a*c*e"})}, "ace", nil, true},
		{selection{services: patterns([]string{"ab*ba"})}, "aba", nil, false},
		{selection{tags: []string{"mesh", "blue"}}, "web", []string{"blue", "x", "mesh"}, true},
		{selection{tags: []string{"mesh", "blue"}}, "web", []string{"mesh"}, false},
	} {
		assert.Equal(t, c.want, c.s.matches(c.name, c.tags), "%+v %s %v", c.s, c.name, c.tags)
	}
}
