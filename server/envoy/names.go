package envoy

import (
	"net"
	"strconv"
	"strings"
)

// The clusters that belong to no service.
const (
	blackHole   = "BlackHoleCluster"   // goes nowhere
	passthrough = "PassthroughCluster" // goes where the connection was meant to go
)

// clusterName is Istio's name of the cluster of a port, or of a subset of it.
func clusterName(port uint32, subset, host string) string {
	return "outbound|" + strconv.FormatUint(uint64(port), 10) + "|" + subset + "|" + host
}

// routeName is Istio's name of the routes of all services on a port.
func routeName(port uint32) string { return strconv.FormatUint(uint64(port), 10) }

// listenerName is Istio's name of the listener of an address.
func listenerName(address string, port uint32) string { return address + "_" + routeName(port) }

// hostPort is host:port, with the brackets of an IPv6 address.
func hostPort(host string, port uint32) string { return net.JoinHostPort(host, routeName(port)) }

// inURL is a host as it stands in an authority: an IPv6 address has brackets.
func inURL(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// statName is a name as a prefix of statistics, with the mark by which Istio's regular expressions find its end.
func statName(name string) string { return name + ";" }
