// Package backend is the contract of the registries of Dubbo's providers: ZooKeeper, Nacos and
// Consul.
package backend
