package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"tributary/server/debug"
	"tributary/server/verify"
	"tributary/server/xds"
)

// expected answers with the configuration that an Envoy should have now.
func (s *Server) expected(response http.ResponseWriter, request *http.Request) error {
	if s.opts.Expected == nil {
		return &failure{http.StatusServiceUnavailable, errors.New("this server has no configuration for Envoys")}
	}
	node := &corev3.Node{}
	text := request.URL.Query().Get("node")
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), node); err != nil {
		message := "want ?node= as the node of an Envoy's bootstrap, in JSON, such as " +
			`{"id": "sidecar~10.0.0.7~web.shop~shop.svc.cluster.local"}`
		// After "proto:", protobuf writes either a space or a non-breaking space.
		if reason, ok := strings.CutPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "); ok && text != "" {
			message += ": " + reason
		}
		return badRequest("%s", message)
	}
	expected, served, err := s.opts.Expected(request.Context(), node, request.URL.Query().Has("delta"))
	if err != nil {
		return &failure{http.StatusServiceUnavailable, errors.New(status.Convert(err).Message())}
	}
	return writeJSON(response, func(w io.Writer) error { return writeExpected(w, expected, served) })
}

// writeExpected adds the dump to the JSON of the expected configuration, one resource at a time.
func writeExpected(writer io.Writer, expected *verify.Expected, served []xds.Served) error {
	head, err := json.MarshalIndent(expected, "", "  ")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(writer, "%s,\n  \"dump\": ", bytes.TrimSuffix(head, []byte("\n}"))); err != nil {
		return err
	}
	if err := debug.WriteDump(writer, served, true); err != nil {
		return err
	}
	_, err = io.WriteString(writer, "\n}\n")
	return err
}
