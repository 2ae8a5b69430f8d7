// Package index keeps the decoded objects for Envoys. It lists the hosts that a change of an object touches, and builds
// the view of a host for the clients of a profile.
//
// Where things are:
//
//   - mesh.go takes objects and collects the touched hosts. entry.go decodes ServiceEntries, group.go WorkloadGroups.
//   - view.go builds the view of a host: service.go its service, policy.go its DestinationRules, mutual.go its mutual
//     TLS, rules.go and delegate.go its VirtualServices, gateway.go its gateways.
//   - sidecar.go decides which services a client sees. serving.go finds the services of a sidecar's own workload,
//     inbound.go the listeners of a Sidecar's ingress.
//   - security.go, target.go, telemetry.go, observation.go and extend.go collect a profile's policies and settings.
//   - selectors.go decides which attributes divide profiles; key.go hashes a view.
package index
