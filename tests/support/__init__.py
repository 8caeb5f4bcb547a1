"""What tests of several folders share: waiting for a condition, forked children, servers, a proxy, stalls."""
