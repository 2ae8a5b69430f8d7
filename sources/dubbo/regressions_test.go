package dubbo

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// TestHasServices_IgnoresFailingRegistration has a provider with a failing check at interface level, and an instance at
// its address that the mapping could serve.
func TestHasServices_IgnoresFailingRegistration(t *testing.T) {
	run := newRun(sourceOf(t, zktest.New(), patiently()), nil)
	u, err := provider.ParseURL("dubbo://10.0.0.1:20880/a?application=app")
	require.NoError(t, err)
	run.Parts(partsOf("a"), nil)
	run.Registered(backend.Part{Interface: "a", Category: backend.Providers, Node: "a"},
		[]backend.Registration{{URL: u, Failing: "its check is critical"}}, nil)
	server := &instance{application: "app", readResult: readResult{succeeded: true}}
	server.Instance = provider.Instance{Application: "app", Host: "10.0.0.1", Port: 20880}
	require.False(t, run.hasServices(server), "a failing registration counts as unlisted")
}

// TestReady_WithoutTheRulesOfAnInterface has configurators that cannot be read, of an interface without providers.
func TestReady_WithoutTheRulesOfAnInterface(t *testing.T) {
	run := newRun(sourceOf(t, zktest.New(), patiently()), nil)
	run.Connection(backend.Connection{Up: true, Fresh: true})
	rules := backend.Part{Interface: "a", Category: backend.Configurators, Node: "a"}
	run.Parts([]backend.Part{rules}, nil)
	run.Applications(nil, nil)
	run.Registered(rules, nil, backend.ErrDenied)
	require.True(t, run.gather(time.Now()).Synced, "each provider was read")
}

// patientMethods has methods that take their time, as those of metadata.Client, and a last one that answers.
func patientMethods(ctx context.Context, i provider.Instance) (metadata provider.Metadata, name string, err error) {
	for range 2 {
		method, cancel := context.WithTimeout(ctx, 2*time.Second)
		<-method.Done()
		cancel()
	}
	return provider.Metadata{Revision: i.Revision}, "the third method", ctx.Err()
}

// TestFind_WaitsForEachMethodOfAnInstance has an instance with a port that does not answer the first methods.
func TestFind_WaitsForEachMethodOfAnInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := sourceOf(t, zktest.New(), patiently())
		source.asker, source.registry = asks(patientMethods), silentRegistry{}
		l := &lookup{ctx: t.Context(), revision: revision{"app", "r1"}, instances: map[*instance]bool{}}
		l.instances[&instance{Instance: provider.Instance{Revision: "r1", Service: &provider.MetadataService{}}}] = true
		answer := newRun(source, nil).find(l)
		require.NoError(t, answer.failure)
		require.Equal(t, "the third method", answer.source)
	})
}

// TestFind_AMuteInstanceCostsLessThanAStart has two instances that do not answer before one that does.
func TestFind_AMuteInstanceCostsLessThanAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := sourceOf(t, zktest.New(), patiently())
		source.asker = asks(func(ctx context.Context, i provider.Instance) (provider.Metadata, string, error) {
			if i.Host != "answers" {
				return provider.Metadata{}, "", hangs(ctx)
			}
			return provider.Metadata{Revision: "r1"}, "an answer", nil
		})
		source.registry = silentRegistry{}
		l := &lookup{ctx: t.Context(), revision: revision{"app", "r1"}, instances: map[*instance]bool{}}
		for _, host := range []string{"mute", "dead", "answers"} {
			l.instances[&instance{Instance: provider.Instance{Host: host, Service: &provider.MetadataService{}}}] = true
		}
		begin := time.Now()
		require.NoError(t, newRun(source, nil).find(l).failure)
		require.Less(t, time.Since(begin), time.Second)
	})
}

// TestReady_WithInstanceRemovedBeforeRead has the list of instances that names it stay, since it cannot be
// read again.
func TestReady_WithInstanceRemovedBeforeRead(t *testing.T) {
	run := newRun(sourceOf(t, zktest.New(), patiently()), nil)
	run.Connection(backend.Connection{Up: true, Fresh: true})
	run.Parts(nil, nil)
	run.Applications([]string{"app"}, nil)
	run.Instances("app", []string{"10.0.0.1:20880"}, nil)
	run.Instance("app", "10.0.0.1:20880", provider.Instance{}, false, backend.ErrAbsent)
	run.Instances("app", nil, backend.ErrDenied)
	require.True(t, run.gather(time.Now()).Synced)
}
