package xds

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"tributary/server/xds/wire"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
)

// rejecting is a delta subscription to a whole collection; its client answers the responses.
type rejecting struct {
	*testing.T
	coll *Collection
	sub  *subscription
	sent uint64
	now  time.Time
}

func newRejecting(t *testing.T, v variant, names ...string) *rejecting {
	r := &rejecting{T: t, coll: NewCollection(Type{URL: testType, OnePerResponse: v.onePerResponse}, Debounce{}), now: time.Unix(1000, 0)}
	r.coll.MarkSynced()
	r.sub = &subscription{
		variant: v, coll: r.coll, metrics: newMetrics(nil, "").forType(testType), client: clientState{state: initialState},
		goal:      initialState,
		selection: subscriptionNames{wildcard: len(names) == 0, names: make(map[string]struct{})},
	}
	for _, name := range names {
		r.sub.selection.names[name] = struct{}{}
	}
	return r
}

// set makes a commit with a revision, and sends it. It returns the nonces of the response.
func (r *rejecting) set(revision uint64, version string, names ...string) (first, last uint64) {
	r.Helper()
	commit := Commit{Revision: revision}
	for _, name := range names {
		commit.Put = append(commit.Put, &Entry{Name: name, Version: version})
	}
	require.True(r, r.coll.Apply(commit))
	r.sub.goal = r.coll.shown.Load()
	responsePlan := r.sub.planAll()
	bodies := responsePlan.bodies(r.sub.variant)
	n := len(bodies)
	r.sub.answers.begin(&r.sub.client, &responsePlan, bodies, r.sub.variant)
	r.sub.client = responsePlan.client
	r.sub.firstNonce, r.sub.lastNonce, r.sub.rejected = r.sent+1, r.sent+uint64(n), false //nolint:gosec // it is small
	r.sent = r.sub.lastNonce
	return r.sub.firstNonce, r.sub.lastNonce
}

func (r *rejecting) answer(nonce uint64, why string) {
	request := &wire.Request{Nonce: strconv.FormatUint(nonce, nonceBase)}
	if why != "" {
		request.Err = &status.Status{Message: why}
	}
	r.now = r.now.Add(time.Second)
	r.sub.ack(request, r.now)
}

func (r *rejecting) expect(want ...string) {
	r.Helper()
	var lines []string
	for _, rejection := range r.sub.rejections() {
		lines = append(lines, fmt.Sprintf("%s@%s after %s of %d: %s", rejection.Name, rejection.Version, rejection.Acked,
			rejection.Revision, rejection.Error))
	}
	require.Equal(r, want, lines)
}

func TestRejections_ListedByResource(t *testing.T) {
	rejecting := newRejecting(t, variant{delta: true})
	_, n := rejecting.set(1, "1", "a", "b", "c")
	rejecting.answer(n, "")
	rejecting.expect()
	_, n = rejecting.set(2, "2", "a", "b")
	rejecting.answer(n, "b is wrong: no such thing")
	rejecting.expect("b@2 after 1 of 1: b is wrong: no such thing")
	firstRejected := rejecting.sub.rejections()[0].Since
	_, n = rejecting.set(3, "3", "b", "c")
	rejecting.answer(n, "something is wrong")
	rejecting.expect("b@3 after 1 of 1: something is wrong", "c@3 after 1 of 1: something is wrong")
	require.Equal(t, firstRejected, rejecting.sub.rejections()[0].Since)
	rejecting.answer(n, "said twice")
	rejecting.expect("b@3 after 1 of 1: something is wrong", "c@3 after 1 of 1: something is wrong")
	_, n = rejecting.set(4, "4", "c")
	rejecting.answer(n, "")
	rejecting.expect("b@3 after 1 of 1: something is wrong")
	rejecting.coll.Apply(Commit{Remove: []string{"b"}, Revision: 5})
	_, n = rejecting.set(6, "6", "a")
	rejecting.answer(n, "")
	rejecting.expect()
	_, n = rejecting.set(7, "7", "a")
	rejecting.answer(n, "")
	rejecting.answer(n, "on second thought")
	rejecting.expect("@ after  of 7: on second thought")
	_, n = rejecting.set(8, "8", "a")
	rejecting.answer(n, "")
	rejecting.expect()
}

func TestRejections_OnePerResponseNeedsNoName(t *testing.T) {
	rejecting := newRejecting(t, variant{delta: true, onePerResponse: true})
	first, last := rejecting.set(1, "1", "80", "81", "82")
	require.Equal(t, first+2, last)
	rejecting.answer(first, "")
	rejecting.answer(first+1, "no")
	rejecting.answer(last, "")
	rejecting.expect("81@1 after  of 0: no")
	first, last = rejecting.set(2, "2", "80", "81")
	rejecting.answer(first, "no")
	rejecting.answer(last, "")
	rejecting.expect("80@2 after 1 of 0: no")
	_, last = rejecting.set(3, "3", "80")
	rejecting.answer(last, "")
	rejecting.expect()
}

func TestRejections_EndWithFullAck(t *testing.T) {
	rejecting := newRejecting(t, variant{})
	_, n := rejecting.set(1, "1", "a", "b")
	rejecting.answer(n, "a")
	rejecting.expect("a@1 after  of 0: a")
	_, n = rejecting.set(2, "2", "b")
	rejecting.answer(n, "")
	rejecting.expect()
}

// Rejections take bounded memory, and resources that the client does not want are not listed.
func TestRejections_Bounded(t *testing.T) {
	rejecting := newRejecting(t, variant{delta: true})
	var names []string
	for i := range 10 * maxRejections {
		names = append(names, fmt.Sprint("n", i))
	}
	_, n := rejecting.set(1, "1", names...)
	rejecting.answer(n, "no")
	require.Len(t, rejecting.sub.rejections(), maxRejections)
	rejecting.sub.selection = subscriptionNames{}
	rejecting.expect()
	require.Len(t, rejecting.sub.answers.rejected, maxRejections)
}

// The client's last reason is kept whole, however long, and the earlier ones are cut to a limit for all of them.
func TestRejectionTexts_Bounded(t *testing.T) {
	rejecting := newRejecting(t, variant{delta: true})
	for i := range maxRejections + 1 {
		name := fmt.Sprintf("n%03d", i)
		_, n := rejecting.set(uint64(i+1), "1", name) //nolint:gosec // it is small
		rejecting.answer(n, name+" "+strings.Repeat("ü", wire.MaxReason/2-3))
		earlierBytes := 0
		rejections := rejecting.sub.rejections()
		for j, rejection := range rejections {
			require.True(t, utf8.ValidString(rejection.Error))
			require.True(t, strings.HasPrefix(rejection.Error, rejection.Name+" ü"), rejection.Error)
			if j == i {
				require.Len(t, rejection.Error, wire.MaxReason-1)
			} else {
				earlierBytes += len(rejection.Error)
			}
		}
		require.LessOrEqual(t, earlierBytes, maxReasons)
		require.Len(t, rejections, min(i+1, maxRejections))
	}
}

func TestMentions(t *testing.T) {
	for text, want := range map[string]bool{
		"a.b":                     true,
		"cluster 'a.b' is wrong":  true,
		"error in a.b: no":        true,
		"error in a.b.":           true,
		"a.b.c is wrong":          false,
		"x.a.b is wrong":          false,
		"x.a.b and a.b are wrong": true,
		"nothing":                 false,
	} {
		require.Equal(t, want, mentions(text, "a.b"), text)
	}
	require.False(t, mentions("80 requests", "80"))
}
