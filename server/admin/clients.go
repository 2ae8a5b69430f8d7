package admin

import "time"

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
