package main

import (
	"bytes"
	"errors"
	"os"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/internal/xdstest"
	"tributary/server/xds"
)

// TestStatus_UnenforcedSecurity has an AuthorizationPolicy for gateways, which enforce it, and for sidecars, which do not.
func TestStatus_UnenforcedSecurity(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/gateway.yaml", `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec: {selector: {istio: ingressgateway}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ['*']}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny-all, namespace: shop}
spec: {selector: {matchLabels: {istio: ingressgateway}}}
`)
	server := serving(t, served(dir)...)
	server.awaitReady(t)
	metric := func(value string) error {
		_, body := server.page(t, "/metrics")
		return contains(body, "\ntributary_envoy_unenforced_objects "+value+"\n")
	}
	require.NoError(t, metric("0"), "no client is connected that could enforce it")
	assert.Zero(t, command(t, "status", "--check", "--admin", server.admin).code)

	labels, err := structpb.NewStruct(map[string]any{"LABELS": map[string]any{"istio": "ingressgateway"}})
	require.NoError(t, err)
	connect := func(role string) {
		stream := xdstest.Dial(t, server.xds, false)
		stream.Node = &corev3.Node{Id: role + "~10.0.0.1~front.shop~shop.svc.cluster.local", Metadata: labels}
		stream.Ask(xds.ClusterURL)
		stream.Next()
	}
	connect("router")
	require.NoError(t, metric("0"), "it is enforced")
	connect("sidecar")

	eventually(t, func() error { return metric("1") })
	eventually(t, func() error {
		got := command(t, "status", "--check", "--admin", server.admin)
		if got.code != exitFindings {
			return errors.New(got.stdout + got.stderr)
		}
		return contains(got.stdout, "1 security object is not enforced on Envoys and gRPC clients: AuthorizationPolicy shop/deny-all")
	})
}

// TestInvalidPolicyDenies has a policy without any valid version: its gateways refuse all requests until it is valid.
func TestInvalidPolicyDenies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/gateway.yaml", `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec: {servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ['*']}]}
`)
	server := serving(t, served(dir)...)
	server.awaitReady(t)
	stream := xdstest.Dial(t, server.xds, false)
	stream.Node = &corev3.Node{Id: "router~10.0.0.1~front.shop~shop.svc.cluster.local"}
	stream.Ask(xds.ListenerURL)
	next := func(refuses bool) {
		t.Helper()
		answer := stream.Next()
		require.Len(t, answer.Bodies, 1)
		require.Equal(t, refuses, bytes.Contains(answer.Bodies[0].GetValue(), []byte("envoy.filters.http.rbac")))
		stream.Ack(answer)
	}
	next(false)
	write(t, dir+"/policy.yaml", `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: shop}
spec: {action: DENY, rules: [{when: [{key: request.nonsense, values: [a]}]}]}
`)
	next(true)
	got := command(t, "status", "--check", "--admin", server.admin)
	assert.Equal(t, exitFindings, got.code)
	require.NoError(t, contains(got.stdout, "AuthorizationPolicy shop/deny"))
	require.NoError(t, os.Remove(dir+"/policy.yaml"))
	next(false)
}
