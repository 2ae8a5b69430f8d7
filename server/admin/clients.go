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
	Node      string    `json:"node"` // the node ID, which the client chooses; not unique
	Peer      string    `json:"peer"`
	Identity  string    `json:"identity,omitempty"` // proven by a certificate, a token or a JWT
	Connected time.Time `json:"connected"`
	Delta     bool      `json:"delta"`
}

func newClient(status *xds.ClientStatus) Client {
	return Client{
		Stream: status.StreamID, Node: status.Node.GetId(), Peer: status.Peer, Identity: status.Identity,
		Connected: status.Connected, Delta: status.Delta,
	}
}

// clientEntry is an entry of /debug/clients: a client with its subscriptions.
type clientEntry struct {
	Client
	Types []typeEntry `json:"types"`
}

// typeEntry is the subscription of a client to a type.
type typeEntry struct {
	TypeURL  string `json:"type_url"`
	Wildcard bool   `json:"wildcard"`
	Names    int    `json:"names,omitempty"`
	Exchanges
	Responses uint64 `json:"responses"`
	Nacks     uint64 `json:"nacks"`
}

// Exchanges are the last response of a type, the last acknowledgement and the last rejection.
type Exchanges struct {
	// Synced is set if the newest version is acknowledged. An istiod may still have dropped it.
	Synced bool      `json:"synced"`
	Sent   *Exchange `json:"sent,omitempty"`
	Acked  *Exchange `json:"acked,omitempty"`
	Nack   *Exchange `json:"nack,omitempty"` // stays when a later response is acknowledged
}

// Exchange is a sent response, an acknowledgement or a rejection.
type Exchange struct {
	Version string    `json:"version,omitempty"`
	Nonce   string    `json:"nonce"`
	Error   string    `json:"error,omitempty"`
	Time    time.Time `json:"time"`
}

func newExchanges(subscription *xds.TypeStatus) Exchanges {
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

// clientEntries yields a clientEntry for each client.
func (s *Server) clientEntries(yield func(any) bool) {
	for client := range s.opts.Clients.EachClient() {
		entry := clientEntry{Client: newClient(&client), Types: []typeEntry{}}
		for _, subscription := range client.Types {
			entry.Types = append(entry.Types, typeEntry{
				TypeURL: subscription.TypeURL, Wildcard: subscription.Wildcard, Names: subscription.Names,
				Exchanges: newExchanges(&subscription), Responses: subscription.Responses, Nacks: subscription.Nacks,
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
	Synced  int `json:"synced"` // clients that have acknowledged the newest version of each type
	// Listed are the first clients, in this order: those that reject a version, those that lag behind, the others.
	Listed []TranslatedClient `json:"some"`
}

// TranslatedClient is a client of translated configuration.
type TranslatedClient struct {
	Node string `json:"node"`
	Peer string `json:"peer"`
	// Behind are the types, such as Cluster, with a newest version that is neither acknowledged nor rejected.
	Behind  []string `json:"behind,omitempty"`
	Rejects []Reject `json:"rejects,omitempty"`
}

// maxTranslatedClients limits the listed clients.
const maxTranslatedClients = 10

// translated summarizes the clients of translated configuration. Without one, it returns nil.
func (s *Server) translated() *Translated {
	var rejecting, behind, synced []TranslatedClient
	for status := range s.opts.Clients.EachClient() {
		client, subscribes := translatedClient(&status)
		switch {
		case !subscribes: // it has no translated configuration
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
	return &Translated{
		Clients: len(clients), Synced: len(synced), Listed: clients[:min(len(clients), maxTranslatedClients)],
	}
}

// IsCommand reports whether a client is a command of this program, such as tributary get.
func IsCommand(client *xds.ClientStatus) bool {
	return client.Node.GetUserAgentName() == verify.CommandAgent
}

// translatedClient summarizes a client. It subscribes if it has a type of Envoy's, and is no command.
func translatedClient(status *xds.ClientStatus) (client TranslatedClient, subscribes bool) {
	client = TranslatedClient{Node: status.Node.GetId(), Peer: status.Peer}
	if IsCommand(status) {
		return client, false
	}
	for _, subscription := range status.Types {
		if !strings.HasPrefix(subscription.TypeURL, "type.googleapis.com/envoy.") {
			continue
		}
		subscribes = true
		if subscription.Rejects() {
			client.Rejects = append(client.Rejects, newReject(&subscription))
		} else if !subscription.Synced {
			client.Behind = append(client.Behind, subscription.TypeURL[strings.LastIndex(subscription.TypeURL, ".")+1:])
		}
	}
	return client, subscribes
}

// ClientState is a client with counts of its types.
type ClientState struct {
	Client
	Types   int      `json:"types"`
	Synced  int      `json:"synced"` // types with an acknowledgement of the newest version
	Nacks   uint64   `json:"nacks"`
	Rejects []Reject `json:"rejects,omitempty"` // rejections of the newest versions
}

// Reject is a rejection of the newest version of a type.
type Reject struct {
	TypeURL string    `json:"type_url"`
	Error   string    `json:"error"`
	Time    time.Time `json:"time"`
}

func newReject(subscription *xds.TypeStatus) Reject {
	return Reject{TypeURL: subscription.TypeURL, Error: subscription.NackError, Time: subscription.NackAt}
}

func (s *Server) clientStates() []ClientState {
	states := []ClientState{}
	for client := range s.opts.Clients.EachClient() {
		state := ClientState{Client: newClient(&client), Types: len(client.Types)}
		for _, subscription := range client.Types {
			state.Nacks += subscription.Nacks
			if subscription.Synced {
				state.Synced++
			}
			if subscription.Rejects() {
				state.Rejects = append(state.Rejects, newReject(&subscription))
			}
		}
		states = append(states, state)
	}
	return states
}

// Recipient is a client that subscribes to the kind of an object. Its exchanges are about all objects of the kind.
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
	recipients := []Recipient{}
	object := s.opts.View.Snapshot().Get(key)
	for client := range s.opts.Clients.EachClient() {
		for _, subscription := range client.Types {
			if schema, ok := resource.SchemaByTypeURL(subscription.TypeURL); !ok || schema.Kind != key.Kind {
				continue
			}
			recipients = append(recipients, Recipient{
				Stream: client.StreamID, Node: client.Node.GetId(), Peer: client.Peer, TypeURL: subscription.TypeURL,
				Hidden:    object != nil && s.opts.Visible != nil && !s.opts.Visible(client.Node, object),
				Exchanges: newExchanges(&subscription),
			})
		}
	}
	return recipients
}
