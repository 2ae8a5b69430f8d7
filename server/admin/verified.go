package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"tributary/resource"
	"tributary/server/debug"
	"tributary/server/verify"
	"tributary/server/xds"
)

// Verified is how an istiod or an Envoy has what is served.
type Verified struct {
	Istiod    string     `json:"istiod,omitempty"`
	Envoy     string     `json:"envoy,omitempty"`
	At        *time.Time `json:"at,omitempty"` // when it was last compared
	Missing   int        `json:"missing"`
	Stale     int        `json:"stale"`
	Different int        `json:"different"`
	Rejected  int        `json:"rejected,omitempty"`
	Warming   int        `json:"warming,omitempty"`
	Error     string     `json:"error,omitempty"` // why the last attempt failed
}

// Wrong is how many objects it does not have as they are served.
func (v *Verified) Wrong() int { return v.Missing + v.Stale + v.Different + v.Rejected + v.Warming }

// Peer says who it is.
func (v *Verified) Peer() string {
	if v.Envoy != "" {
		return "Envoy " + v.Envoy
	}
	return "istiod " + v.Istiod
}

// Found says in words what was found, if anything is wrong.
func (v *Verified) Found() string {
	said := fmt.Sprintf("%d missing, %d stale, %d different", v.Missing, v.Stale, v.Different)
	if v.Envoy != "" {
		said += fmt.Sprintf(", %d rejected, %d warming", v.Rejected, v.Warming)
	}
	return said
}

func verifiedOf(r *verify.Report) Verified {
	return Verified{
		Istiod: r.Istiod, Envoy: r.Envoy, At: optional(r.At), Missing: r.Count(verify.Missing), Stale: r.Count(verify.Stale),
		Different: r.Count(verify.Different), Rejected: r.Count(verify.Rejected), Warming: r.Count(verify.Warming), Error: r.Error,
	}
}

// Found is how an istiod has an object that it does not have as it is served.
type Found struct {
	Peer   string       `json:"peer"`
	Class  verify.Class `json:"class"`
	Reason string       `json:"reason"`
	At     time.Time    `json:"at"` // when they were compared
}

// Findings returns what was found of the objects that istiods do not have as they are served. What Envoys have are no objects of ours.
func (s *Server) Findings() map[resource.Key][]Found {
	all := make(map[resource.Key][]Found)
	for _, r := range s.reports() {
		if r.Envoy != "" {
			continue
		}
		of := verifiedOf(&r)
		for _, f := range r.Findings {
			all[f.Key()] = append(all[f.Key()], Found{of.Peer(), f.Class, f.Reason, r.At})
		}
	}
	return all
}

// expected answers with what an Envoy should have now.
func (s *Server) expected(w http.ResponseWriter, r *http.Request) {
	if s.opts.Expected == nil {
		http.Error(w, "nothing is served to Envoys", http.StatusServiceUnavailable)
		return
	}
	node, text := &corev3.Node{}, r.URL.Query().Get("node")
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), node); err != nil {
		said := `want ?node= as the node of an Envoy's bootstrap, in JSON, such as {"id": "sidecar~10.0.0.7~web.shop~shop.svc.cluster.local"}`
		// protobuf writes the one space or the other
		if why, ok := strings.CutPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "); ok && text != "" {
			said += ": " + why
		}
		http.Error(w, said, http.StatusBadRequest)
		return
	}
	expected, served, err := s.opts.Expected(r.Context(), node, r.URL.Query().Has("delta"))
	if err != nil {
		http.Error(w, status.Convert(err).Message(), http.StatusServiceUnavailable)
		return
	}
	s.writeJSON(w, r, func(w io.Writer) error { return writeExpected(w, expected, served) })
}

func writeExpected(w io.Writer, expected *verify.Expected, served []xds.Served) error {
	head, err := json.MarshalIndent(expected, "", "  ")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "%s,\n  \"dump\": ", bytes.TrimSuffix(head, []byte("\n}"))); err != nil {
		return err
	}
	if err := debug.WriteDump(w, served, true); err != nil {
		return err
	}
	_, err = io.WriteString(w, "\n}\n")
	return err
}

func optional(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func (s *Server) reports() []verify.Report {
	if s.opts.Verified == nil {
		return nil
	}
	return s.opts.Verified()
}
