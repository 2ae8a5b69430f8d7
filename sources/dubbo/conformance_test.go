package dubbo

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/dubbo/zookeeper"
	"tributary/sources/dubbo/zookeeper/zktest"
	"tributary/sources/sourcetest"
)

func TestConformance(t *testing.T) {
	for name, level := range map[string]level{"interfaces": interfaces{}, "applications": applications{}} {
		for how, expire := range map[string]bool{"cut": false, "expired": true} {
			t.Run(name+", sessions "+how, func(t *testing.T) {
				sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
					return &harness{t: t, server: zktest.New(), level: level, expire: expire}
				})
			})
		}
	}
}

// harness is a ZooKeeper with a provider for each object.
type harness struct {
	t      *testing.T
	server *zktest.Server
	level  level
	expire bool
}

// level is one at which providers register.
type level interface {
	put(s *zktest.Server, name string, revision int)
	remove(s *zktest.Server, name string)
}

// quickly are settings with which nothing takes long.
func quickly() Settings {
	return Settings{
		Delay: time.Millisecond, Hold: 20 * time.Millisecond, KeepEmpty: 20 * time.Millisecond, Grace: 20 * time.Millisecond, Resync: time.Minute,
	}
}

func sourceOf(t *testing.T, s *zktest.Server, settings Settings) *Source {
	t.Helper()
	require.NoError(t, settings.complete())
	source, err := newSource(zookeeper.WithDial(s.Dial, zookeeper.Address{Group: zookeeper.DefaultGroup}, settings.Resync), "zookeeper /dubbo/", settings)
	require.NoError(t, err)
	return source
}

func (h *harness) Source() sources.Source { return sourceOf(h.t, h.server, quickly()) }

func (h *harness) Key(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "dubbo", Name: name}
}

func (h *harness) Put(name string, revision int) { h.level.put(h.server, name, revision) }
func (h *harness) Delete(name string)            { h.level.remove(h.server, name) }

func (h *harness) Unreachable() {
	if h.expire {
		h.server.Expire()
	} else {
		h.server.Cut()
	}
}

func (h *harness) Deny() {
	h.server.Deny("/dubbo")
	h.server.Deny("/services")
}

func (h *harness) Restore() {
	h.server.Allow("/dubbo")
	h.server.Allow("/services")
	h.server.Mend()
}

// interfaces have one provider each, which is registered anew for each revision.
type interfaces struct{}

func (interfaces) put(s *zktest.Server, name string, revision int) {
	path := "/dubbo/" + name + "/providers/"
	node := func(revision int) string {
		return path + url.QueryEscape(fmt.Sprintf("dubbo://10.0.1.%d:20880/%s?application=a&interface=%s&timestamp=%d", revision, name, name, 1_700_000_000_000+revision))
	}
	for other := range 10 {
		if other != revision {
			s.Delete(node(other))
		}
	}
	s.Put(node(revision), "127.0.0.1")
}

func (interfaces) remove(s *zktest.Server, name string) { s.Delete("/dubbo/" + name) }

// applications have one instance each, of which the node changes in place.
type applications struct{}

func (applications) put(s *zktest.Server, name string, revision int) {
	s.Put(fmt.Sprintf("/dubbo/metadata/%s/r%d", name, revision), fmt.Sprintf(
		`{"app":%q,"revision":"r%d","services":{"%s:dubbo":{"name":%q,"protocol":"dubbo","port":20880,"path":%q,"params":{"weight":"%d"}}}}`,
		name, revision, name, name, name, revision))
	s.Put("/services/"+name+"/10.0.1.1:20880", fmt.Sprintf(
		`{"name":%q,"id":"10.0.1.1:20880","address":"10.0.1.1","port":20880,"payload":{"metadata":{"dubbo.endpoints":"[{\"port\":20880,\"protocol\":\"dubbo\"}]","dubbo.metadata.revision":"r%d","dubbo.metadata.storage-type":"remote"}}}`,
		name, revision))
}

func (applications) remove(s *zktest.Server, name string) { s.Delete("/services/" + name) }
