package xds

import "testing"

// A secret that the client rejects does not affect others: each has a delta response of its own, however the response is made.
func TestSecrets_OnePerResponse(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(SecretURL, "a", "b", "c")
	c := w.delta(SecretURL)
	c.ask(SecretURL, "a", "b", "c", "d")
	c.expectAck(SecretURL, nil, "a@1")
	c.nack(c.expect(SecretURL, "b@1"), "there is no such file")
	c.expectAck(SecretURL, nil, "c@1")
	c.expectAck(SecretURL, nil, "-d")
	w.set(SecretURL, "a@2", "c@2", "-b")
	c.expectAck(SecretURL, nil, "a@2")
	c.expectAck(SecretURL, nil, "c@2")
	c.expectAck(SecretURL, nil, "-b")

	wildcardClient := w.delta(SecretURL)
	wildcardClient.ask(SecretURL)
	wildcardClient.expectAck(SecretURL, nil, "a@2")
	wildcardClient.expectAck(SecretURL, nil, "c@2")
	w.set(SecretURL, "a@3", "c@3")
	wildcardClient.expectAck(SecretURL, nil, "a@3")
	wildcardClient.expectAck(SecretURL, nil, "c@3")
	wildcardClient.silence()
}
