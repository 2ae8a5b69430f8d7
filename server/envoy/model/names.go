package model

import (
	"net"
	"strconv"
	"strings"
)

// The clusters that belong to no service.
const (
	BlackHole   = "BlackHoleCluster"   // goes nowhere
	Passthrough = "PassthroughCluster" // goes where the connection was meant to go
)

// ClusterName is Istio's name of the cluster of a port, or of a subset of it.
func ClusterName(port uint32, subset, host string) string {
	return "outbound|" + strconv.FormatUint(uint64(port), 10) + "|" + subset + "|" + host
}

// RouteName is Istio's name of the routes of all services on a port.
func RouteName(port uint32) string { return strconv.FormatUint(uint64(port), 10) }

// ListenerName is Istio's name of the listener of an address.
func ListenerName(address string, port uint32) string { return address + "_" + RouteName(port) }

// HostPort is host:port, with the brackets of an IPv6 address.
func HostPort(host string, port uint32) string { return net.JoinHostPort(host, RouteName(port)) }

// InURL is a host as it stands in an authority: an IPv6 address has brackets.
func InURL(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// StatName is a name as a prefix of statistics, with the mark by which Istio's regular expressions find its end.
func StatName(name string) string { return name + ";" }
