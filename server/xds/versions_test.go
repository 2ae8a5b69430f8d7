package xds

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A resumed client ends up with what it subscribed to, whatever it brought along, and is told nothing that it knows.
func TestResumingAgainstAModel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	name := func() string { return fmt.Sprintf("n%02d", r.IntN(80)) }
	version := func() string { return fmt.Sprint(r.IntN(2)) }
	for range 2000 {
		served := map[string]string{}
		var changes []change
		for range r.IntN(80) {
			e := &Entry{Name: name(), Version: version()}
			served[e.Name] = e.Version
			changes = append(changes, change{e.Name, e})
		}
		to := (&state{}).with(changes)
		sub := &subscription{isDelta: true, wildcard: r.IntN(2) == 0, initial: &versions{}, names: map[string]struct{}{}}
		for range r.IntN(20) {
			sub.names[name()] = struct{}{}
		}
		had := map[string]string{}
		for range r.IntN(80) {
			n, v := name(), version()
			had[n] = v // given twice, the last counts
			sub.initial.add([]byte(n), []byte(v), 100)
		}
		if n := name(); r.IntN(3) == 0 {
			sub.initial.forget(n)
			delete(had, n)
		}

		var wantPuts, wantRemoved, gotPuts []string
		for i := range 80 {
			n := fmt.Sprintf("n%02d", i)
			if !sub.covers(n) {
				continue
			}
			now, there := served[n]
			before, knew := had[n]
			_, asked := sub.names[n]
			switch {
			case there && (!knew || before != now):
				wantPuts = append(wantPuts, n)
			case !there && (knew || asked):
				wantRemoved = append(wantRemoved, n)
			}
		}
		puts, removed := sub.resume(to)
		for _, e := range puts {
			gotPuts = append(gotPuts, e.Name)
		}
		require.Equal(t, wantPuts, gotPuts)
		require.ElementsMatch(t, wantRemoved, removed)
	}
}
