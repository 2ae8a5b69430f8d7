// Package mcp serves a view of resources as Istio's Mesh Configuration Protocol: each kind is a collection of the xDS
// engine, under every version of its API group, its resources wrapped in istio.mcp.v1alpha1.Resource. istiod reads it
// through meshConfig.configSources.
package mcp
