package model

import (
	"net"
	"strconv"
	"strings"
)

// The clusters that belong to no service.
const (
	BlackHole   = "BlackHoleCluster"   // drops connections
	Passthrough = "PassthroughCluster" // keeps the original destination
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

// InURL is a host in the form of an authority: an IPv6 address has brackets.
func InURL(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// StatName is a prefix of statistics, with the mark of its end for Istio's regular expressions.
func StatName(name string) string { return name + ";" }
