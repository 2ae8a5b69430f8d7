package admin

import (
	"slices"
	"strings"
	"time"

	"tributary/server/verify"
	"tributary/server/xds"
)

// client is an entry of /debug/clients: one stream.
type client struct {
	Stream    uint64       `json:"stream"`
	Node      string       `json:"node"` // id, as the client gives it; not unique
	Peer      string       `json:"peer"`
	Identity  string       `json:"identity,omitempty"` // what it has proven to be: by a certificate, a token or a JWT
	Connected time.Time    `json:"connected"`
	Delta     bool         `json:"delta"`
	Types     []clientType `json:"types"`
}

type clientType struct {
	TypeURL   string    `json:"type_url"`
	Wildcard  bool      `json:"wildcard"`
	Names     int       `json:"names,omitempty"`
	Synced    bool      `json:"synced"` // the newest version is acknowledged, which with istiod does not mean applied
	Sent      *Exchange `json:"sent,omitempty"`
	Acked     *Exchange `json:"acked,omitempty"`
	Nack      *Exchange `json:"nack,omitempty"` // the last rejection, also if a later response was acknowledged
	Responses uint64    `json:"responses"`
	Nacks     uint64    `json:"nacks"`
}

// Exchange is a response sent, or its acknowledgement or rejection.
type Exchange struct {
	Version string    `json:"version,omitempty"`
	Nonce   string    `json:"nonce"`
	Error   string    `json:"error,omitempty"`
	Time    time.Time `json:"time"`
}

func (s *Server) clients(yield func(any) bool) {
	for c := range s.opts.Clients.EachClient() {
		out := client{
			Stream: c.StreamID, Node: c.Node.GetId(), Peer: c.Peer, Identity: c.Identity, Connected: c.Connected, Delta: c.Delta,
			Types: []clientType{},
		}
		for _, t := range c.Types {
			out.Types = append(out.Types, clientType{
				TypeURL: t.TypeURL, Wildcard: t.Wildcard, Names: t.Names, Synced: t.Synced,
				Sent:      happened(t.SentVersion, t.SentNonce, "", t.SentAt),
				Acked:     happened(t.AckedVersion, t.AckedNonce, "", t.AckedAt),
				Nack:      happened("", t.NackNonce, t.NackError, t.NackAt),
				Responses: t.Responses, Nacks: t.Nacks,
			})
		}
		if !yield(out) {
			return
		}
	}
}

// happened returns an exchange, or nil if it never took place.
func happened(version, nonce, err string, at time.Time) *Exchange {
	if at.IsZero() {
		return nil
	}
	return &Exchange{Version: version, Nonce: nonce, Error: err, Time: at}
}

// Translated says of the clients that are sent what is made of objects, Envoys and programs of gRPC, how far they are. Which of them an
// object bears on is for the translation to know.
type Translated struct {
	Clients int `json:"clients"` // how many there are
	Synced  int `json:"synced"`  // that have acknowledged the newest of all that they ask for
	// Some are those that reject something, then those that have not acknowledged everything, then the others, up to a number.
	Some []TranslatedClient `json:"some"`
}

// TranslatedClient is one of them.
type TranslatedClient struct {
	Node string `json:"node"`
	Peer string `json:"peer"`
	// the types, such as Cluster, of which it has not acknowledged the newest version, and that it does not reject
	Behind  []string `json:"behind,omitempty"`
	Rejects []Reject `json:"rejects,omitempty"`
}

// maxTranslated is how many clients are named.
const maxTranslated = 10

// translated returns how far those are who are sent what is made of objects; nil if there are none.
func (s *Server) translated() *Translated {
	var t Translated
	var rejecting, behind, synced []TranslatedClient
	for c := range s.opts.Clients.EachClient() {
		one, asks := translatedClient(&c)
		if !asks {
			continue
		}
		t.Clients++
		group := &synced
		switch {
		case len(one.Rejects) > 0:
			group = &rejecting
		case len(one.Behind) > 0:
			group = &behind
		default:
			t.Synced++
		}
		if len(*group) < maxTranslated {
			*group = append(*group, one)
		}
	}
	if t.Clients == 0 {
		return nil
	}
	t.Some = slices.Concat(rejecting, behind, synced)
	t.Some = t.Some[:min(len(t.Some), maxTranslated)]
	return &t
}

// IsCommand reports whether a client is a command of the program, which is neither an istiod nor an Envoy, whatever it asks for.
func IsCommand(c *xds.ClientStatus) bool { return c.Node.GetUserAgentName() == verify.CommandAgent }

func translatedClient(c *xds.ClientStatus) (one TranslatedClient, asks bool) {
	one = TranslatedClient{Node: c.Node.GetId(), Peer: c.Peer}
	if IsCommand(c) {
		return one, false
	}
	for _, t := range c.Types {
		switch {
		case !strings.HasPrefix(t.TypeURL, "type.googleapis.com/envoy."):
			continue
		case t.Rejects():
			one.Rejects = append(one.Rejects, Reject{t.TypeURL, t.NackError, t.NackAt})
		case !t.Synced:
			one.Behind = append(one.Behind, t.TypeURL[strings.LastIndex(t.TypeURL, ".")+1:])
		}
		asks = true
	}
	return one, asks
}
