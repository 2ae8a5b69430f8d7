package kube

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLostConnection_ShownOnce has no connection for any request, and then one kind that the server refuses.
func TestLostConnection_ShownOnce(t *testing.T) {
	away := errors.New("no connection")
	r := &run{Source: &Source{shownAddress: "k8s://c"}, discoveryErr: away}
	for _, plural := range []string{"gateways", "sidecars"} {
		r.streams = append(r.streams, &stream{run: r, kind: &kind{plural: plural}, err: away})
	}
	require.Equal(t, "k8s://c: look for the kinds: no connection", r.health().Message)
	r.streams[1].err = &refusal{Code: 500, Message: "etcd is away"}
	require.Equal(t, "k8s://c: look for the kinds: no connection; sidecars: 500 Internal Server Error: etcd is away",
		r.health().Message)
}
