package consul

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/judge"
)

// TestAdoptedService_ConfirmedAfterItsInstances: the names lack a service of an earlier run, which is registered again
// after an outage. Names that were read before that do not prove that the settings no longer select it.
func TestAdoptedService_ConfirmedAfterItsInstances(t *testing.T) {
	for name, selected := range map[string]bool{"selected": true, "unselected": false} {
		t.Run(name, func(t *testing.T) {
			now, fake := time.Now(), newWorld(t)
			settings := Settings{}
			require.NoError(t, settings.complete())
			scope := newRun(settings, newSinkPublisher(fake, fake), fake, 0, newMetrics()).scopes[0]
			scope.suspect("a test", now)
			adopted := &service{name: "web", scope: scope, nameState: nameAdopted, restored: true}
			scope.services["web"] = adopted
			readNames := func(names ...string) {
				scope.confirmedReads.started++
				answer := listing{
					Answer: judge.Answer{Index: 10, Confirmed: true}, confirmedRead: scope.confirmedReads.started,
					names: make(map[string][]string),
				}
				for _, listed := range names {
					answer.names[listed] = nil
				}
				scope.applyNames(answer, now)
			}
			registered := serviceAnswer{instances: webInstances("1"), Answer: judge.Answer{Index: 11, Confirmed: true}}
			adopted.applyFailure(&trouble{state: sources.Unreachable, message: "down"})
			readNames()
			require.Equal(t, judge.Unconfirmed, adopted.applyAnswer(registered, now))
			require.Equal(t, nameAdopted, adopted.nameState)
			if selected {
				readNames("web")
				require.Equal(t, judge.Changed, adopted.applyAnswer(registered, now))
				require.Len(t, adopted.instances.list, 1)
				return
			}
			readNames()
			require.Equal(t, judge.Emptied, adopted.applyAnswer(registered, now))
			require.Equal(t, nameDelisted, adopted.nameState)
		})
	}
}

func TestUnselectedNames_PublishedAfterChange(t *testing.T) {
	settings, world := Settings{}, newWorld(t)
	require.NoError(t, settings.complete())
	run := newRun(settings, newSinkPublisher(world, world), world, world.places, newMetrics())
	for index, test := range []struct {
		unselected []string
		changed    bool
	}{{[]string{"api"}, true}, {[]string{"api"}, false}, {[]string{"web"}, true}, {nil, true}} {
		run.unselectedChanged = false
		answer := judge.Answer{Index: uint64(index + 1), Confirmed: true}
		run.applyListing(t.Context(), run.scopes[0], listing{Answer: answer, unselected: test.unselected})
		require.Equal(t, test.changed, run.unselectedChanged, test.unselected)
	}
}
