package admin

import (
	"slices"
	"strings"
	"time"

	"tributary/resource"
	"tributary/server/verify"
	"tributary/server/xds"
)

// Client is the stream of a client.
type Client struct {
	Stream    uint64    `json:"stream"`
	Node      string    `json:"node"` // the ID by the client; not unique
	Peer      string    `json:"peer"`
	Identity  string    `json:"identity,omitempty"` // proven by a certificate, a token or a JWT
	Connected time.Time `json:"connected"`
	Delta     bool      `json:"delta"`
}

func clientOf(status *xds.ClientStatus) Client {
	return Client{
		status.StreamID, status.Node.GetId(), status.Peer, status.Identity, status.Connected, status.Delta,
	}
}

// clientTypes is an entry of /debug/clients.
type clientTypes struct {
	Client
	Types []clientType `json:"types"`
}

type clientType struct {
	TypeURL  string `json:"type_url"`
	Wildcard bool   `json:"wildcard"`
	Names    int    `json:"names,omitempty"`
	Exchanges
	Responses uint64 `json:"responses"`
	Nacks     uint64 `json:"nacks"`
}

// Exchanges are the last exchanges about a type.
type Exchanges struct {
	Synced bool      `json:"synced"` // the newest version is acknowledged, which with istiod does not mean applied
	Sent   *Exchange `json:"sent,omitempty"`
	Acked  *Exchange `json:"acked,omitempty"`
	Nack   *Exchange `json:"nack,omitempty"` // the last rejection, also if a later response was acknowledged
}

// Exchange is a response sent, or its acknowledgement or rejection.
type Exchange struct {
	Version string    `json:"version,omitempty"`
	Nonce   string    `json:"nonce"`
	Error   string    `json:"error,omitempty"`
	Time    time.Time `json:"time"`
}

func exchangesOf(subscription *xds.TypeStatus) Exchanges {
	exchange := func(version, nonce, err string, moment time.Time) *Exchange {
		if moment.IsZero() {
			return nil
		}
		return &Exchange{Version: version, Nonce: nonce, Error: err, Time: moment}
	}
	return Exchanges{
		Synced: subscription.Synced,
		Sent:   exchange(subscription.SentVersion, subscription.SentNonce, "", subscription.SentAt),
		Acked:  exchange(subscription.AckedVersion, subscription.AckedNonce, "", subscription.AckedAt),
		Nack:   exchange("", subscription.NackNonce, subscription.NackError, subscription.NackAt),
	}
}

func (s *Server) clients(yield func(any) bool) {
	for client := range s.opts.Clients.EachClient() {
		entry := clientTypes{clientOf(&client), []clientType{}}
		for _, subscription := range client.Types {
			entry.Types = append(entry.Types, clientType{
				subscription.TypeURL, subscription.Wildcard, subscription.Names, exchangesOf(&subscription),
				subscription.Responses, subscription.Nacks,
			})
		}
		if !yield(entry) {
			return
		}
	}
}

// Translated summarizes the clients of translated configuration: Envoys and gRPC clients.
type Translated struct {
	Clients int `json:"clients"`
	Synced  int `json:"synced"` // that have acknowledged the newest version of each type
	// Some are the first of those that reject something, then of those that lag behind, then of the others.
	Some []TranslatedClient `json:"some"`
}

// TranslatedClient is a client of translated configuration.
type TranslatedClient struct {
	Node string `json:"node"`
	Peer string `json:"peer"`
	// Behind are types, such as Cluster, without an acknowledgement or a rejection of the newest version.
	Behind  []string `json:"behind,omitempty"`
	Rejects []Reject `json:"rejects,omitempty"`
}

// maxTranslated limits the listed clients.
const maxTranslated = 10

// translated returns nil without clients of translated configuration.
func (s *Server) translated() *Translated {
	var rejecting, behind, synced []TranslatedClient
	for status := range s.opts.Clients.EachClient() {
		switch client, subscribes := translatedClient(&status); {
		case !subscribes:
		case len(client.Rejects) > 0:
			rejecting = append(rejecting, client)
		case len(client.Behind) > 0:
			behind = append(behind, client)
		default:
			synced = append(synced, client)
		}
	}
	clients := slices.Concat(rejecting, behind, synced)
	if len(clients) == 0 {
		return nil
	}
	return &Translated{len(clients), len(synced), clients[:min(len(clients), maxTranslated)]}
}

// IsCommand reports whether a client is a command of the program, which is neither an istiod nor an Envoy.
func IsCommand(client *xds.ClientStatus) bool {
	return client.Node.GetUserAgentName() == verify.CommandAgent
}

func translatedClient(status *xds.ClientStatus) (client TranslatedClient, subscribes bool) {
	client = TranslatedClient{Node: status.Node.GetId(), Peer: status.Peer}
	for _, subscription := range status.Types {
		if IsCommand(status) || !strings.HasPrefix(subscription.TypeURL, "type.googleapis.com/envoy.") {
			continue
		}
		subscribes = true
		if subscription.Rejects() {
			client.Rejects = append(client.Rejects, rejectOf(&subscription))
		} else if !subscription.Synced {
			client.Behind = append(client.Behind, subscription.TypeURL[strings.LastIndex(subscription.TypeURL, ".")+1:])
		}
	}
	return client, subscribes
}

// ClientState is a client without the history of its types.
type ClientState struct {
	Client
	Types   int      `json:"types"`
	Synced  int      `json:"synced"` // types with an acknowledgement of the newest version
	Nacks   uint64   `json:"nacks"`
	Rejects []Reject `json:"rejects,omitempty"` // of the newest versions
}

// Reject is a rejection of the newest version of a type.
type Reject struct {
	TypeURL string    `json:"type_url"`
	Error   string    `json:"error"`
	Time    time.Time `json:"time"`
}

func rejectOf(subscription *xds.TypeStatus) Reject {
	return Reject{subscription.TypeURL, subscription.NackError, subscription.NackAt}
}

func (s *Server) clientStates() []ClientState {
	states := []ClientState{}
	for client := range s.opts.Clients.EachClient() {
		state := ClientState{Client: clientOf(&client), Types: len(client.Types)}
		for _, subscription := range client.Types {
			state.Nacks += subscription.Nacks
			if subscription.Synced {
				state.Synced++
			}
			if subscription.Rejects() {
				state.Rejects = append(state.Rejects, rejectOf(&subscription))
			}
		}
		states = append(states, state)
	}
	return states
}

// Recipient is a client that subscribes to a kind. The exchanges are about the kind as a whole.
type Recipient struct {
	Stream  uint64 `json:"stream"`
	Node    string `json:"node"`
	Peer    string `json:"peer"`
	TypeURL string `json:"type_url"`
	Hidden  bool   `json:"hidden,omitempty"` // the revision or the namespaces of the client exclude the object
	Exchanges
}

// recipients returns the clients that subscribe to the kind of an object.
func (s *Server) recipients(key resource.Key) []Recipient {
	recipients, object := []Recipient{}, s.opts.View.Snapshot().Get(key)
	for client := range s.opts.Clients.EachClient() {
		for _, subscription := range client.Types {
			if schema, ok := resource.SchemaByTypeURL(subscription.TypeURL); !ok || schema.Kind != key.Kind {
				continue
			}
			recipients = append(recipients, Recipient{
				client.StreamID, client.Node.GetId(), client.Peer, subscription.TypeURL,
				object != nil && s.opts.Visible != nil && !s.opts.Visible(client.Node, object), exchangesOf(&subscription),
			})
		}
	}
	return recipients
}
