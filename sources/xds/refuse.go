package xds

// refusal is that of a server by us.
type refusal struct {
	server string
	err    error
}

// refuse has a server that has been accepted refused after all, with all that a refusal means: nothing more of the stream is
// taken, and there is a wait before the next one. The client knows refusals only of a stream that begins: so another one
// does, and accept refuses that.
func (r *run) refuse(server string, err error) {
	r.refusal = &refusal{server, err}
	r.client.Reconnect()
}

// unwelcome returns why nothing of a server is taken, or nil.
func (r *run) unwelcome(server string) error {
	switch {
	case r.refusal != nil && r.refusal.server == server:
		return r.refusal.err
	case r.looped[server]:
		return loop(server)
	}
	return nil
}
