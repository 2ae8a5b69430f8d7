package eureka

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/eureka/client"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
)

// caching is a server whose listings are texts that it made at some time, and whose answers for single instances are made when it is asked.
type caching struct {
	t            *testing.T
	all, changes string
	has          map[string]string // answers for single instances
	err          error             // in place of those
	mu           sync.Mutex
	asked        []string // since it was looked at; guarded by mu
}

func (c *caching) Servers() []string { return []string{"a"} }

func (c *caching) reply(text string) (*client.Reply, error) {
	a, err := wire.Decode([]byte(text))
	require.NoError(c.t, err)
	return &client.Reply{Answer: a, Sum: sha256.Sum256([]byte(text))}, nil
}

func (c *caching) All(context.Context, string) (*client.Reply, error) { return c.reply(c.all) }

func (c *caching) Changes(context.Context, string) (*client.Reply, error) { return c.reply(c.changes) }

func (c *caching) One(_ context.Context, _ string, key wire.Key) (*client.Reply, error) {
	c.mu.Lock()
	c.asked = append(c.asked, key.ID)
	c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	a := &wire.Answer{}
	if text := c.has[key.ID]; text != "" {
		var err error
		a, err = wire.DecodeOne(key.App, []byte(text))
		require.NoError(c.t, err)
	}
	return &client.Reply{Answer: a}, nil
}

// told is an instance of orders as the server of Spring Cloud 2023.0.3 writes it, in a lease that began so many seconds after the start and
// lasts 90.
func told(ip, status, action string, registered, evicted int) string {
	ms := func(seconds int) int64 {
		if seconds == 0 {
			return 0
		}
		return at(time.Duration(seconds) * time.Second).UnixMilli()
	}
	return fmt.Sprintf(`{"instanceId":"%[1]s","hostName":"%[1]s","app":"ORDERS","ipAddr":"%[1]s","status":"%[2]s",`+
		`"overriddenStatus":"UNKNOWN",`+
		`"port":{"$":80,"@enabled":"true"},"securePort":{"$":443,"@enabled":"false"},"vipAddress":"orders","actionType":"%[3]s",`+
		`"leaseInfo":{"registrationTimestamp":%[4]d,"lastRenewalTimestamp":%[4]d,"durationInSecs":9000,"evictionTimestamp":%[5]d}}`,
		ip, status, action, ms(registered), ms(evicted))
}

func listed(hash string, version int, instances ...string) string {
	list := ""
	for n, i := range instances {
		if n > 0 {
			list += ","
		}
		list += i
	}
	return fmt.Sprintf(`{"applications":{"versions__delta":"%d","apps__hashcode":"%s","application":[{"name":"ORDERS","instance":[%s]}]}}`,
		version, hash, list)
}

func single(i string) string { return `{"instance":` + i + `}` }

// ledger is a follower with its state, at times of its own.
type ledger struct {
	*book
	follower *follower
	server   *caching
	now      time.Duration
}

func newLedger(t *testing.T) *ledger {
	l := &ledger{book: newBook(t), server: &caching{t: t, has: map[string]string{}}}
	l.follower = newFollower(l.server, newCounts(), 0, view.Marks{})
	l.follower.now = func() time.Time { return at(l.now) }
	return l
}

// turns reads at a time, and wants what is believed then.
func (l *ledger) turns(now time.Duration, want ...string) {
	l.t.Helper()
	l.now, l.server.asked = now, nil
	r, err := l.follower.next(l.t.Context(), false)
	require.NoError(l.t, err)
	require.NoError(l.t, advance(l.t.Context(), l.follower, l.state, r, at(now)))
	l.settle(at(now))
	require.Equal(l.t, want, l.believed(orders))
}

const (
	a1 = "10.0.0.1"
	a2 = "10.0.0.2"
	a3 = "10.0.0.3"
)

// restarted has a server with three instances be started anew. All have registered again, and the listing that it made while the last one
// did, which lacks that one, stays in its cache.
func restarted(t *testing.T) *ledger {
	l := newLedger(t)
	l.server.all = listed("UP_3_", 1, told(a1, "UP", "ADDED", 1, 0), told(a2, "UP", "ADDED", 1, 0), told(a3, "UP", "ADDED", 1, 0))
	l.server.changes = listed("UP_3_", 7)
	l.turns(10*time.Second, a1, a2, a3)
	l.server.all, l.server.changes = listed("", 1), listed("", 0)
	l.turns(20*time.Second, a1, a2, a3)
	l.server.has[a3] = single(told(a3, "UP", "ADDED", 22, 0))
	one, two := told(a1, "UP", "ADDED", 21, 0), told(a2, "UP", "ADDED", 21, 0)
	l.server.all, l.server.changes = listed("UP_2_", 1, one, two), listed("UP_2_", 2, one, two)
	return l
}

// TestWhoLivesIsNotWithdrawnForAnOldListing has the cache of a server hold a listing for longer than hold.
func TestWhoLivesIsNotWithdrawnForAnOldListing(t *testing.T) {
	l := restarted(t)
	l.turns(25*time.Second, a1, a2, a3)
	require.Contains(t, l.server.asked, a3)
	held, _, here := l.held("a")
	require.Zero(t, held, "it is there")
	require.Equal(t, 1, here)
	for _, later := range []time.Duration{80 * time.Second, 85 * time.Second, 20 * time.Minute} { // hold is a minute
		l.turns(later, a1, a2, a3)
	}
	l.server.has[a3] = ""
	l.turns(21*time.Minute, a1, a2)
	require.Zero(t, l.stays())
}

// TestOutOfServiceByItsOwnWord has an instance that is not listed be taken out of service.
func TestOutOfServiceByItsOwnWord(t *testing.T) {
	l := restarted(t)
	l.turns(25*time.Second, a1, a2, a3)
	l.server.has[a3] = single(told(a3, "OUT_OF_SERVICE", "MODIFIED", 22, 0))
	l.turns(30*time.Second, a1, a2)
}

// TestWhatComesOfAnInstanceThatIsVouchedFor goes on from there.
func TestWhatComesOfAnInstanceThatIsVouchedFor(t *testing.T) {
	one, two, three := told(a1, "UP", "ADDED", 21, 0), told(a2, "UP", "ADDED", 21, 0), told(a3, "UP", "ADDED", 22, 0)
	for name, c := range map[string]struct {
		then    func(*ledger)
		stays   bool
		vouched bool
	}{
		"it is listed at last": {func(l *ledger) {
			l.server.all, l.server.changes = listed("UP_3_", 1, one, two, three), listed("UP_3_", 3, one, two, three)
		}, true, false},
		"it deregisters": {func(l *ledger) {
			delete(l.server.has, a3)
			l.server.changes = listed("UP_2_", 4, one, two, told(a3, "UP", "DELETED", 22, 30))
		}, false, false},
		"single instances are not told any more": {func(l *ledger) { l.server.err = errors.New("500") }, true, true},
		"the server starts anew once more": {func(l *ledger) {
			delete(l.server.has, a3)
			l.server.all, l.server.changes = listed("", 1), listed("", 0)
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := restarted(t)
			l.turns(25*time.Second, a1, a2, a3)
			c.then(l)
			if c.stays {
				l.turns(31*time.Second, a1, a2, a3)
			} else {
				l.turns(31*time.Second, a1, a2)
			}
			_, _, here := l.held("a")
			require.Equal(t, c.vouched, here > 0)
		})
	}
}

// TestDeregisteredAndBackAtOnce has an instance end and start while the server makes its answers: these say that it went.
func TestDeregisteredAndBackAtOnce(t *testing.T) {
	one := told(a1, "UP", "ADDED", 1, 0)
	for name, c := range map[string]struct {
		has   string
		err   error
		stays bool
	}{
		"it is back":                       {has: single(told(a2, "UP", "ADDED", 31, 0)), stays: true},
		"it is back, and not yet up":       {has: single(told(a2, "STARTING", "ADDED", 31, 0))},
		"it has gone":                      {},
		"single instances cannot be asked": {err: &client.StatusError{Status: 403, Err: client.ErrDenied}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			l.server.all, l.server.changes = listed("UP_2_", 1, one, told(a2, "UP", "ADDED", 1, 0)), listed("UP_2_", 7)
			l.turns(10*time.Second, a1, a2)
			require.Empty(t, l.server.asked)
			l.server.all, l.server.changes = listed("UP_1_", 1, one), listed("UP_1_", 8, told(a2, "UP", "DELETED", 1, 30))
			l.server.has[a2], l.server.err = c.has, c.err
			want := []string{a1}
			if c.stays {
				want = append(want, a2)
			}
			l.turns(35*time.Second, want...)
			require.Equal(t, []string{a2}, l.server.asked, "and nobody else")
		})
	}
}

// TestWhoCouldNotBeAskedInTimeIsAskedTheNextTime has more instances go at once than can be asked for.
func TestWhoCouldNotBeAskedInTimeIsAskedTheNextTime(t *testing.T) {
	l := newLedger(t)
	l.server.all, l.server.changes = listed("UP_2_", 1, told(a1, "UP", "ADDED", 1, 0), told(a2, "UP", "ADDED", 1, 0)), listed("UP_2_", 7)
	l.turns(10*time.Second, a1, a2)
	l.server.all, l.server.changes = listed("", 1), listed("", 8, told(a1, "UP", "DELETED", 1, 30), told(a2, "UP", "DELETED", 1, 30))
	patience := l.follower.patience
	l.follower.patience = 0
	l.server.err = context.DeadlineExceeded
	l.turns(35*time.Second, a1, a2)
	l.follower.patience, l.server.err = patience, nil
	l.turns(36*time.Second, []string{}...)
}

// TestFewAreAskedAtATime has many be in doubt: all have their turn.
func TestFewAreAskedAtATime(t *testing.T) {
	l, ips := newLedger(t), []string{}
	var there []string
	for n := range 2*maxDoubts + 5 {
		ips = append(ips, fmt.Sprintf("10.0.%d.%d", n/200, n%200+1))
	}
	slices.Sort(ips)
	for _, ip := range ips {
		there = append(there, told(ip, "UP", "ADDED", 1, 0))
	}
	l.server.all, l.server.changes = listed(fmt.Sprintf("UP_%d_", len(ips)), 1, there...), listed(fmt.Sprintf("UP_%d_", len(ips)), 7)
	sorted := ips
	l.turns(10*time.Second, sorted...)
	l.follower.again = time.Second
	l.server.all, l.server.changes = listed("", 1), listed("", 0)
	asked := map[string]bool{}
	for n := range 3 {
		l.turns(20*time.Second+time.Duration(n)*time.Second, sorted...)
		require.Len(t, l.server.asked, maxDoubts)
		for _, id := range l.server.asked {
			asked[id] = true
		}
	}
	require.Len(t, asked, len(ips))
	for n, ip := range ips {
		l.server.has[ip] = single(there[n])
	}
	l.turns(80*time.Second, sorted...) // when they would go, all of them are asked for
	require.Len(t, l.server.asked, len(ips))
	held, _, here := l.held("a")
	require.Equal(t, []int{0, len(ips)}, []int{held, here})
}

// TestWhoIsAskedOutlivesARestart has a run know by what to ask for what an earlier one had in doubt.
func TestWhoIsAskedOutlivesARestart(t *testing.T) {
	l := restarted(t)
	l.server.err = errors.New("500")
	l.turns(25*time.Second, a1, a2, a3)
	doubts := l.doubts("a")
	l.server.err = nil
	after := &ledger{book: newBook(t).after(l.has, doubts), server: l.server}
	after.follower = newFollower(l.server, newCounts(), 0, l.follower.signs())
	after.follower.now = func() time.Time { return at(after.now) }
	after.turns(10*time.Minute, a1, a2, a3)
	_, _, here := after.held("a")
	require.Equal(t, 1, here)
}

// picky is a server that refuses requests for some single instances, or says nothing to them. A request takes a moment, and ends with its
// context.
type picky struct {
	*caching
	refuses, hangs map[string]bool
}

func (p *picky) One(ctx context.Context, s string, key wire.Key) (*client.Reply, error) {
	switch {
	case p.refuses[key.ID]:
		return nil, &client.StatusError{Status: 400, Err: errors.New("400 Bad Request")}
	case p.hangs[key.ID] || p.hangs["*"]:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Millisecond):
	}
	return p.caching.One(ctx, s, key)
}

// goes has instances be listed, and deregistered by what the server lists next. It is one that vouches for those of stay when it is asked.
func (l *ledger) goes(p *picky, ips, stay []string) {
	l.follower.asker = p
	var all, ended []string
	for _, ip := range ips {
		all, ended = append(all, told(ip, "UP", "ADDED", 1, 0)), append(ended, told(ip, "UP", "DELETED", 1, 30))
	}
	l.server.all, l.server.changes = listed(fmt.Sprintf("UP_%d_", len(ips)), 1, all...), listed(fmt.Sprintf("UP_%d_", len(ips)), 7)
	l.turns(10*time.Second, ips...)
	for _, ip := range stay {
		l.server.has[ip] = single(told(ip, "UP", "ADDED", 31, 0))
	}
	l.server.all, l.server.changes = listed("", 1), listed("", 8, ended...)
}

// after is what is believed of orders after a turn.
func (l *ledger) after(t *testing.T, d time.Duration) []string {
	l.now = d
	r, err := l.follower.next(t.Context(), false)
	require.NoError(t, err)
	require.NoError(t, advance(t.Context(), l.follower, l.state, r, at(d)))
	l.settle(at(d))
	return l.believed(orders)
}

// TestOneThatCannotBeAskedForSpoilsNoOther has a server refuse one name, as a real one does of a name with a slash. It would vouch for the
// others.
func TestOneThatCannotBeAskedForSpoilsNoOther(t *testing.T) {
	l := newLedger(t)
	l.follower.patience = time.Minute
	bad, others := "10.0.0.1", []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"}
	l.goes(&picky{caching: l.server, refuses: map[string]bool{bad: true}}, append([]string{bad}, others...), others)
	require.Equal(t, others, l.after(t, 35*time.Second), "by the listing the one that cannot be asked for went")
}

// TestASilentServerKeepsNobodyForEver has a server, or what stands before it, say nothing when asked for single instances.
func TestASilentServerKeepsNobodyForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		l.follower.patience = 20 * time.Millisecond
		l.goes(&picky{caching: l.server, hangs: map[string]bool{"*": true}}, []string{a1, a2}, nil)
		for d := 35 * time.Second; d < 35*time.Second+l.holdFor; d += l.holdFor / 10 {
			require.Equal(t, []string{a1, a2}, l.after(t, d), d)
		}
		require.Empty(t, l.after(t, 35*time.Second+l.holdFor))
	})
}

// TestThoseThatAreSilentHoldUpNoOther has all askers wait for those that come first, at each turn.
func TestThoseThatAreSilentHoldUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		l.follower.patience = 200 * time.Millisecond
		ips, hangs := []string{}, map[string]bool{}
		for n := range 6 * askers {
			ip := fmt.Sprintf("10.0.0.%d", 10+n)
			ips = append(ips, ip)
			hangs[ip] = n < 5*askers
		}
		l.goes(&picky{caching: l.server, hangs: hangs}, ips, nil)
		for n := range 4 {
			l.after(t, (35+time.Duration(n))*time.Second)
		}
		require.Equal(t, ips[:5*askers], l.after(t, 40*time.Second))
	})
}
