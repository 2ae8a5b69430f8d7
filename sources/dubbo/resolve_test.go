package dubbo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/intake"
	"tributary/internal/worker"
	"tributary/sources"
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/zookeeper"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// TestMapping_ReadForUnresolvedInstancesOnly has an instance that cannot be asked, and registers its interfaces as
// well.
func TestMapping_ReadForUnresolvedInstancesOnly(t *testing.T) {
	server := zktest.New()
	for n := range 200 {
		server.Put(fmt.Sprintf("/dubbo/mapping/com.acme.I%d", n), "other")
	}
	register(server, "a 10.0.0.1")
	rig := start(t, server, quickly())
	rig.awaitAll("a 10.0.0.1:20880*100")
	instanceOf(server, "app", "10.0.0.1:20880", "r1")
	rig.awaitUnresolved()
	require.Less(t, server.Reads(), 100)
	instanceOf(server, "other", "10.0.0.2:20880", "r1")
	rig.Await("the services of the other application", func() bool { return len(rig.show()) == 201 })
}

// askedOf are instances that answer, refuse or hang, by their host.
type askedOf map[string]func(ctx context.Context) error

func (a askedOf) Ask(ctx context.Context, i provider.Instance) (m provider.Metadata, how string, err error) {
	return m, i.Host, a[i.Host](ctx)
}

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestSilentInstance_DoesNotBlockOthers has it among others with the same revision, which are asked in any order.
func TestSilentInstance_DoesNotBlockOthers(t *testing.T) {
	asker := askedOf{
		"mute": hangs, "refuses": func(context.Context) error { return errors.New("no") },
		"answers": func(context.Context) error { return nil },
	}
	synctest.Test(t, func(t *testing.T) {
		source := sourceOf(t, zktest.New(), patiently())
		source.asker, source.registry = asker, silentRegistry{}
		find := func(hosts ...string) (result, time.Duration) {
			l := &lookup{ctx: t.Context(), revision: revision{"app", "r1"}, instances: map[*instance]bool{}}
			for _, host := range hosts {
				l.instances[&instance{Instance: provider.Instance{Host: host, Service: &provider.MetadataService{}}}] = true
			}
			began := time.Now()
			return newRun(source, nil).find(l), time.Since(began)
		}
		answer, took := find("refuses", "mute", "answers")
		require.NoError(t, answer.failure)
		require.Equal(t, "answers", answer.source)
		require.LessOrEqual(t, took, perInstance)
		answer, took = find("mute", "refuses")
		require.ErrorIs(t, answer.failure, context.DeadlineExceeded)
		require.ErrorContains(t, answer.failure, "no")
		require.Equal(t, perInstance, took)
	})
}

// TestMetadataOverLimit_Refused has two applications. The limit has room for the metadata of one, until that one goes.
func TestMetadataOverLimit_Refused(t *testing.T) {
	m := func(service string) *provider.Metadata {
		return &provider.Metadata{Services: []provider.Service{{Name: service, Protocol: "dubbo", Params: map[string]string{"k": "v"}}}}
	}
	size := m("a").Size()
	require.Greater(t, size, 7)
	ctx := intake.NewPool(intake.Limits{Objects: size}).Source(t.Context())
	first, second := &lookup{ctx: ctx, revision: revision{"one", "r"}}, &lookup{ctx: ctx, revision: revision{"two", "r"}}
	require.NoError(t, first.keep(m("a")))
	require.EqualError(t, second.keep(m("b")), fmt.Sprintf("application \"two\" revision \"r\": its %d bytes: "+
		"the memory of the objects takes more than %d bytes (limits.objectBytes)", size, size))
	require.Nil(t, second.metadata)
	require.NoError(t, first.keep(nil))
	require.NoError(t, second.keep(m("b")))
	require.NoError(t, second.keep(nil))
	require.NoError(t, intake.Keep(ctx, 0, size), "no other bytes are kept")
}

// TestUnversionedMetadata_ReadAgain has an instance that first answers with a part of its services, without a revision,
// and then fails once.
func TestUnversionedMetadata_ReadAgain(t *testing.T) {
	s := zktest.New()
	instanceOf(s, "app", "10.0.0.1:20880", "r1")
	var tries atomic.Int32
	rig := start(t, s, patiently(), func(s *Source) {
		s.confirmAfter = 10 * time.Millisecond
		s.asker = asks(func(ctx context.Context, i provider.Instance) (provider.Metadata, string, error) {
			switch tries.Add(1) {
			case 1:
				return revisionAsker{"r1": {"a"}}.Ask(ctx, i)
			case 2:
				return revisionAsker{}.Ask(ctx, i)
			}
			return revisionAsker{"r1": {"a", "b"}}.Ask(ctx, i)
		})
	})
	rig.awaitAll("a 10.0.0.1:20880*100", "b 10.0.0.1:20880*100")
	rig.Await("it says the same twice", func() bool { return tries.Load() == 4 })
	time.Sleep(100 * time.Millisecond)
	require.EqualValues(t, 4, tries.Load(), "then it is believed")
}

// TestMetadataOverLimit_DegradesStatus has an application with metadata over the limit, and a provider at interface
// level.
func TestMetadataOverLimit_DegradesStatus(t *testing.T) {
	server := zktest.New()
	applicationOf(server, "app", "10.0.0.1:20880", "r1", strings.Repeat("a", 5_000))
	register(server, "c 10.0.0.2")
	b := startWithin(t, intake.Limits{Objects: 10_000}, server, patiently())
	b.awaitAll("c 10.0.0.2:20880*100")
	b.Await("the status reports it", func() bool {
		return b.Status().State == sources.Degraded && strings.HasPrefix(b.Status().Message, `application "app" revision "r1": its `)
	})
	server.Delete("/services/app/10.0.0.1:20880")
	b.AwaitState(sources.Healthy)
}

// TestMalformedInstance_ReportedOnce has an instance without a revision and with unreadable endpoints.
func TestMalformedInstance_ReportedOnce(t *testing.T) {
	s := zktest.New()
	s.Put("/services/app/10.0.0.1:20880",
		`{"name":"app","address":"10.0.0.1","port":20880,"payload":{"metadata":{"dubbo.endpoints":"20880"}}}`)
	b := start(t, s, patiently())
	b.AwaitState(sources.Degraded)
	require.Equal(t, `instance 10.0.0.1:20880 of app: dubbo.endpoints: want a list in JSON of protocols and ports, got "20880"`,
		b.Status().Message)
}

// silentRegistry is one that cannot say anything yet.
type silentRegistry struct{ backend.Registry }

func (silentRegistry) Watch(ctx context.Context, _ backend.Listener, _ backend.Wanted) error {
	<-ctx.Done()
	return ctx.Err()
}

func (silentRegistry) Metadata(context.Context, string, string) ([]byte, error) {
	return nil, backend.ErrAbsent
}

// TestStatus_StartingBeforeConnection shows that a registry that was not tried yet is not said to be unreachable.
func TestStatus_StartingBeforeConnection(t *testing.T) {
	b := start(t, zktest.New(), patiently(), func(s *Source) { s.registry = silentRegistry{} })
	b.Await("the status reports it", func() bool { return b.Status().Message != "" })
	require.Equal(t, sources.Starting, b.Status().State)
	require.Equal(t, "not connected yet", b.Status().Message)
}

// TestLookup_DroppedWithItsLastInstance has an application with an instance of the revision for no services, and
// removes it.
func TestLookup_DroppedWithItsLastInstance(t *testing.T) {
	r := newRun(sourceOf(t, zktest.New(), patiently()), nil)
	r.workers, r.ctx = worker.New(t.Context())
	defer r.workers.Stop()
	i := &instance{id: "10.0.0.1:1", application: "app"}
	r.applications["app"] = &application{instances: map[string]*instance{i.id: i}}
	r.Instance("app", i.id, provider.Instance{Application: "app", Host: "10.0.0.1", Port: 1, Revision: noServices}, true, nil)
	require.NoError(t, r.workers.Wait())
	require.NotNil(t, i.lookup.metadata)
	r.drop(i)
	require.Empty(t, r.lookups)
}

// TestMappingOverLimit_ReturnsError has a ZooKeeper with more interfaces in its mapping than the limit.
func TestMappingOverLimit_ReturnsError(t *testing.T) {
	server := zktest.New()
	for n := range backend.MaxMapped + 1 {
		server.Put(fmt.Sprintf("/dubbo/mapping/com.acme.I%d", n), "app")
	}
	a, err := zookeeper.ParseAddress("zookeeper://zk:2181")
	require.NoError(t, err)
	r := zookeeper.WithDial(server.Dial, a, time.Minute)
	watching, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Watch(watching, ignorer{}, backend.Wanted{})
	}()
	var mapped map[string][]string
	require.Eventually(t, func() bool {
		mapped, err = r.Mapped(t.Context())
		return err != nil && strings.Contains(err.Error(), "MaxMapped")
	}, 20*time.Second, time.Millisecond)
	require.Nil(t, mapped)
	require.EqualError(t, err, "ZooKeeper's /dubbo/mapping on zk:2181 has at least 20001 interfaces (limit 20000, MaxMapped): "+
		"delete those without a provider")
	stop()
	<-ended
}

// ignorer ignores every event.
type ignorer struct{ backend.Listener }

func (ignorer) Parts([]backend.Part, error)                             {}
func (ignorer) Applications([]string, error)                            {}
func (ignorer) Registered(backend.Part, []backend.Registration, error)  {}
func (ignorer) Instances(string, []string, error)                       {}
func (ignorer) Instance(string, string, provider.Instance, bool, error) {}
func (ignorer) CountOthers(int)                                         {}
func (ignorer) Connection(backend.Connection)                           {}
func (ignorer) Healed(string)                                           {}
