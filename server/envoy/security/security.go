// Package security translates security objects into Envoy's filters. It is pure.
package security

import (
	"iter"

	"tributary/server/envoy/model"
)

// Objects are the security objects that are for the clients of a profile, and what they refer to.
type Objects struct {
	Policies []*model.AuthorizationPolicy   // the oldest first
	Tokens   []*model.RequestAuthentication // the oldest first
	Peers    []*model.PeerAuthentication    // the oldest first

	Config  *model.MeshConfig // with the trust domain and the providers; not nil
	Client  model.Profile
	Cluster func(service string, port uint32) (cluster, why string) // to a service, which may be named as namespace/host, or why there is none
	Warn    bool                                                    // traffic passes although something cannot be enforced
}

// Of returns what the objects ask of listeners.
func Of(all Objects) *model.Security {
	s := &model.Security{}
	addPeers(s, all)
	return s
}

// Services yields the services that authorize requests or have the keys of tokens.
func Services(config *model.MeshConfig, policies iter.Seq[*model.AuthorizationPolicy], tokens iter.Seq[*model.RequestAuthentication],
) iter.Seq[string] {
	return func(func(string) bool) {}
}
